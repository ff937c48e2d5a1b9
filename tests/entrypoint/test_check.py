import json

import pytest
from torch_pool import cli
from torch_pool.torch_version import installed_torch_version

ASYNC = "backend:cudaMallocAsync"


def check(argv):
    return cli.main(["check", *argv], None)


@pytest.mark.parametrize(
    ("argv", "status"),
    [
        ([ASYNC, "--torch", "2.6"], 0),
        (["max_split_size_mb:512MB", "--torch", "2.6"], 0),
        (["bogus:1", "--torch", "2.6"], 78),
        (["bogus:1", "--torch", "2.99"], 0),
        (["expandable_segments:True,max_split_size_mb:64", "--torch", "2.6"], 78),
        (["", "--torch", "2.6"], 0),
        ([], 64),
        ([ASYNC, "again"], 64),
        (["--help"], 0),
    ],
)
def test_the_status_says_whether_a_launch_would_refuse(argv, status, capsys):
    assert check(argv) == status


def test_the_report_names_the_verdict_each_finding_and_the_conf_to_export(capsys):
    check(["max_split_size_mb:512, backend:cudaMallocAsync", "--torch", "2.6.0"])
    out, err = capsys.readouterr()
    assert out == (
        "torch 2.6 accepts 'max_split_size_mb:512, backend:cudaMallocAsync' (allocator async)\n"
        "warn: max_split_size_mb:512 is ignored with backend:cudaMallocAsync: remove it, or choose the "
        "native allocator if it is needed (TORCH_POOL_ALLOCATOR=native or expandable) [ignored-under-async]\n"
        "note: 'max_split_size_mb:512, backend:cudaMallocAsync' has white space, which torch refuses in "
        "other places: remove it [white-space]\n"
        "set: max_split_size = 536870912\n"
        "export: PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync\n"
    )
    assert err == ""


def test_the_json_report_is_one_object_with_a_format_number(capsys):
    check(["bogus:1", "--torch", "2.6", "--json"])
    report = json.loads(capsys.readouterr().out)
    finding = report.pop("findings")[0]
    assert (finding["severity"], finding["code"], finding["key"]) == ("refuse", "torch-refuses", None)
    assert report == {
        "format": 1,
        "refused": True,
        "conf": "bogus:1",
        "torch": "2.6",
        "accepted": False,
        "error": "Unrecognized CachingAllocator option: bogus",
        "when": "init",
        "backend": "native",
        "allocator": "native",
        "settings": None,
        "normalised": None,
    }


def test_a_usage_error_leaves_stdout_empty(capsys):
    check([])
    out, err = capsys.readouterr()
    assert out == ""
    assert "CONF" in err


def test_bytes_that_are_not_text_are_shown_and_not_fatal(capsys):
    assert check(["\udcff:1", "--torch", "2.6"]) == 78
    assert r"\udcff" in capsys.readouterr().out


# Which torch is installed

VERSION_FILES = {
    "2.6.0+cu124": "__all__ = ['__version__', 'cuda']\n__version__ = '2.6.0+cu124'\ncuda = '12.4'\n",
    "2.10.0": '__version__: str = "2.10.0"\n',
}


@pytest.mark.parametrize("version", VERSION_FILES)
def test_the_version_is_read_from_torchs_version_file(tmp_path, version):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(VERSION_FILES[version])
    assert installed_torch_version([tmp_path / "absent", str(tmp_path)]) == version


def test_the_version_is_read_from_the_metadata_folder_where_the_file_is_missing(tmp_path):
    (tmp_path / "torchvision-0.21.0.dist-info").mkdir()
    (tmp_path / "torch-2.6.0+cu124.dist-info").mkdir()
    assert installed_torch_version([str(tmp_path)]) == "2.6.0+cu124"


def test_the_first_torch_on_the_path_counts(tmp_path):
    for name, version in (("first", "2.5.1"), ("second", "2.6.0")):
        (tmp_path / name / f"torch-{version}.dist-info").mkdir(parents=True)
    assert installed_torch_version([str(tmp_path / "first"), str(tmp_path / "second")]) == "2.5.1"


@pytest.mark.parametrize("content", ["", "__version__ = \n", "version = '2.6.0'\n", "\xff\xfe"])
def test_no_version_is_found_where_none_is_told(tmp_path, content):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text(content, encoding="latin-1")
    assert installed_torch_version([str(tmp_path), "/proc/self/mem", ""]) is None
