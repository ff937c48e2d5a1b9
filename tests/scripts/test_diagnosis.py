import pytest

from scripts.diagnosis import diagnose

FULL = "the disk is full"
UNTRUSTED = "a server's certificate is not trusted"
OTHER_HASH = "a package is not the one that the lock names"
REFUSED = "a registry or index refuses"
UNREACHABLE = "cannot be reached"
ABSENT = "does not exist there"
OTHER_TORCH = "the base is not what the table says"


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("#9 12.3 error: write /x: no space left on device\n#9 ERROR: failed: exit code: 2", FULL),
        ("#9 1.0 OSError: [Errno 28] No space left on device", FULL),
        ("#8 3.1   ╰─▶ invalid peer certificate: UnknownIssuer", UNTRUSTED),
        ("#8 3.1 ssl.SSLCertVerificationError: CERTIFICATE_VERIFY_FAILED", UNTRUSTED),
        ("E: Failed to fetch https://m/x  Certificate verification failed: not trusted.", UNTRUSTED),
        (
            "ERROR: tls: failed to verify certificate: x509: certificate signed by unknown authority",
            UNTRUSTED,
        ),
        ("error: Failed to fetch\n  Caused by: Hash mismatch for `torch==2.6.0`", OTHER_HASH),
        ("ERROR: pull access denied, authorization failed: insufficient_scope\n401 Unauthorized", REFUSED),
        ("ERROR: denied: requested access to the resource is denied", REFUSED),
        ("E: Failed to fetch http://mirror/x  403  Forbidden [IP: 10.0.0.1 80]", REFUSED),
        ("error: HTTP status client error (403 Forbidden) for url (http://index/torch/)", REFUSED),
        ("ERROR: unexpected status from HEAD request to http://r/v2/x: 403 Forbidden", REFUSED),
        ("dial tcp: lookup registry.example: no such host", UNREACHABLE),
        ("dial tcp: lookup registry.example on 10.0.0.1:53: server misbehaving", UNREACHABLE),
        ("W: Failed to fetch http://m/InRelease  Temporary failure resolving 'm'", UNREACHABLE),
        ("net/http: TLS handshake timeout", UNREACHABLE),
        ("error: error sending request for url\n  Caused by: dns error", UNREACHABLE),
        ("dial tcp 127.0.0.1:9: connect: connection refused", UNREACHABLE),
        ("E: Failed to fetch http://mirror/tini_0.19.deb  404  Not Found [IP: 10.0.0.1 80]", ABSENT),
        ("ERROR: docker.io/pytorch/pytorch:2.6.0-cuda11.2: not found", ABSENT),
        ("ERROR: manifest unknown: manifest unknown", ABSENT),
        ("  x No solution found when resolving dependencies:", ABSENT),
        ("#12 0.2 expected torch 2.6.0 for CUDA 12.4, found torch 2.5.1 for CUDA 12.4", OTHER_TORCH),
        ("#12 0.2 expected one installed torch, found 2: a, b", OTHER_TORCH),
    ],
)
def test_an_output_is_told_as_one_sentence_with_its_cause(output, meaning):
    sentence = diagnose(f"#1 [internal] load build definition\n{output}\n")
    assert meaning in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "#12 0.345 curl: (6) Could not resolve host: m\n#12 ERROR: x",
            "curl: (6) Could not resolve host: m",
        ),
        (
            "\x1b[31m > [2/3] RUN x:\x1b[0m\r\n0.345 curl: (6) Could not resolve host: m\r\n",
            "curl: (6) Could not resolve host: m",
        ),
        (" 10%\r 20%\rerror: dns error\r\n", "error: dns error"),
        ("No space left on device", "No space left on device"),
        ("error: dns error for http://user:secret@m/torch", "error: dns error for http://***@m/torch"),
    ],
)
def test_the_line_that_told_it_is_shown_without_what_surrounds_it(output, line):
    assert diagnose(output).endswith(f"({line})")


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("", "it said nothing"),
        ("\n \r\n", "it said nothing"),
        ("ERROR: invalid reference format\n", "it ended with: ERROR: invalid reference format"),
        (
            "#5 0.1 PermissionError: [Errno 13] Permission denied: '/x'\n#5 ERROR: exit code: 1\n\n",
            "it ended with: ERROR: exit code: 1",
        ),
    ],
)
def test_an_unknown_failure_is_told_by_its_last_words(output, sentence):
    assert diagnose(output) == sentence


def test_a_cause_comes_before_what_follows_from_it():
    output = (
        "error: Failed to fetch: `https://i/torch`\n  Caused by: invalid peer certificate: UnknownIssuer\n"
    )
    assert UNTRUSTED in diagnose(output)
