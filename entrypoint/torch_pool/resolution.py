"""The resolution: every value that a launch would set, with its source and the reason. It touches nothing."""

from torch_pool.conf import CONF_BY_ALLOCATOR, judge, judge_environment
from torch_pool.finding import Finding
from torch_pool.launch import CONF
from torch_pool.profile import Profile
from torch_pool.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_pool.conf import Verdict
    from torch_pool.settings import Settings

USER = "-e"
BAKED = "baked profile"
MEMORY = "TORCH_POOL_MEMORY"


class Setting(NamedTuple):
    """One variable of the command's environment. `source` is where its value came from."""

    name: str
    value: str
    source: str
    reason: str


class Chosen(NamedTuple):
    """The profile of a launch and where it came from: the baked one, a name, or a mounted file."""

    profile: Profile
    source: str = BAKED


class Resolution(NamedTuple):
    """`insisted` says that the user chose the allocator, so that no fallback may replace it.

    `source` is where the profile came from, `torch_version` that of the image's torch.
    """

    profile: Profile
    source: str
    torch_version: str
    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]
    verdict: "Verdict"
    insisted: bool


def resolve(
    given: "Mapping[str, str]", settings: "Settings", chosen: Chosen, torch_version: str
) -> Resolution:
    """Apply the precedence: -e, then TORCH_POOL_*, then the named profile, then the baked one.

    `given` is what the user set (provenance.given_by_user). A value of the user's is used as it is.
    """
    conf = _resolve_conf(given, settings, chosen)
    verdict = judge(conf.value, torch_version)
    findings = [
        *settings.findings,
        *_disagreements(conf, verdict, settings, chosen),
        *(finding._replace(key=CONF, message=_name_conf(finding, conf)) for finding in verdict.findings),
        *judge_environment({**chosen.profile.env, **given, CONF: conf.value}, torch_version),
    ]
    return Resolution(
        chosen.profile,
        chosen.source,
        torch_version,
        (conf, *_resolve_memory(settings, chosen), *_resolve_env(given, chosen)),
        tuple(findings),
        verdict,
        insisted=conf.source in (USER, "TORCH_POOL_ALLOCATOR"),
    )


def _resolve_conf(given: "Mapping[str, str]", settings: "Settings", chosen: Chosen) -> Setting:
    # An empty value is a value: the user asks for torch's own default.
    if CONF in given:
        return Setting(CONF, given[CONF], USER, "given with -e or a derived image's ENV, used as it is")
    if settings.allocator:
        conf = CONF_BY_ALLOCATOR[settings.allocator]
        return Setting(CONF, conf, "TORCH_POOL_ALLOCATOR", f"the word {settings.allocator}")
    return Setting(CONF, chosen.profile.conf, chosen.source, _place(chosen.profile, "allocator"))


def _resolve_memory(settings: "Settings", chosen: Chosen) -> list[Setting]:
    if settings.memory:
        return [Setting(MEMORY, settings.memory, USER, "given by the user, used as it is")]
    if chosen.profile.memory:
        return [Setting(MEMORY, chosen.profile.memory, chosen.source, _place(chosen.profile, "memory"))]
    return []


def _resolve_env(given: "Mapping[str, str]", chosen: Chosen) -> list[Setting]:
    """Further variables of the profile, only where the user set none; an empty one is set."""
    reason = _place(chosen.profile, "env")
    return [
        Setting(name, value, chosen.source, reason)
        for name, value in chosen.profile.env.items()
        if name not in given
    ]


def _place(profile: Profile, key: str) -> str:
    return f"{key} in {profile.places.get(key, profile.name)}"


def _name_conf(finding: Finding, conf: Setting) -> str:
    """Say where the conf came from, which the judge cannot know."""
    source = f"-e {CONF}" if conf.source == USER else f"{CONF} from {conf.source}"
    return f"{source}: {finding.message}"


def _disagreements(conf: Setting, verdict: "Verdict", settings: "Settings", chosen: Chosen) -> list[Finding]:
    """One warning for each word of the user's that a higher one overrules."""
    overruled = []
    if conf.source == USER and settings.allocator and settings.allocator != verdict.allocator:
        overruled.append(f"TORCH_POOL_ALLOCATOR={settings.allocator}")
    if chosen.source not in (BAKED, conf.source) and conf.value != chosen.profile.conf:
        overruled.append(f"the allocator of profile {chosen.profile.name} ({chosen.profile.conf})")
    winner = f"-e {CONF}={conf.value}" if conf.source == USER else f"{conf.source}={settings.allocator}"
    return [
        Finding("warn", "overruled", CONF, f"{winner} overrules {loser}; remove one of them")
        for loser in overruled
    ]
