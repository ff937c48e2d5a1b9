from scripts.inputs import Inputs, build_inputs
from scripts.machine import AptSource, Fact, Machine

SECRETS = ("index-password", "apt-password", "proxy-password")
MACHINE = Machine(
    apt_sources=(AptSource("https://u:apt-password@m.example/debian/", "bookworm", ("main",), "x"),),
    pip_index=Fact("index-url", "https://u:index-password@i.example/simple", "pip config"),
    ca_bundle=Fact("CA bundle", "/etc/ssl/ca.pem", "this system"),
    proxies=(
        Fact("HTTP_PROXY", "http://u:proxy-password@p.example:3128", "apt"),
        Fact("NO_PROXY", "localhost", "the shell's no_proxy"),
    ),
    notes=(),
)
NOTHING = Machine((), None, None, (), ())


def test_secrets_go_by_id_and_proxies_by_name():
    assert build_inputs(MACHINE, {}).arguments == (
        *("--build-arg", "HTTP_PROXY", "--build-arg", "NO_PROXY"),
        *("--secret", "id=ca,src=/etc/ssl/ca.pem"),
        *("--secret", "id=index,env=TORCH_POOL_SECRET_INDEX"),
        *("--secret", "id=apt_sources,env=TORCH_POOL_SECRET_APT_SOURCES"),
    )


def test_their_values_are_in_the_environment_of_buildx_alone():
    before = {"PATH": "/bin", "HTTP_PROXY": "http://other.example"}
    environ = build_inputs(MACHINE, before).environ
    assert environ == {
        "PATH": "/bin",
        "HTTP_PROXY": "http://u:proxy-password@p.example:3128",
        "NO_PROXY": "localhost",
        "TORCH_POOL_SECRET_INDEX": "https://u:index-password@i.example/simple",
        "TORCH_POOL_SECRET_APT_SOURCES": "deb https://u:apt-password@m.example/debian/ bookworm main\n",
    }
    assert before == {"PATH": "/bin", "HTTP_PROXY": "http://other.example"}


def test_a_machine_without_a_configuration_gives_nothing():
    assert build_inputs(NOTHING, {"PATH": "/bin"}) == Inputs((), {"PATH": "/bin"})
