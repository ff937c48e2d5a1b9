"""What we expect torch 2.6.0 to make of a conf, in the form of tests/data/alloc_conf_2.6.0.json.

`expected_outcome` can be compared with a recorded case, or with what tests/image/real_parser.py saw.
"""

from torch_pool.conf_parser import parse_conf

TORCH_MINOR = 6


def expected_outcome(conf: str) -> dict:
    """`outcome` is "ok" with the settings, "error" with torch's message, or "undefined" behaviour."""
    parse = parse_conf(conf, TORCH_MINOR)
    start = {"conf": conf, "load_backend": parse.backend}
    if parse.undefined:
        return start | {"outcome": "undefined"}
    if parse.error is not None:
        # The recorder stripped white space at the end of messages.
        return start | {"outcome": "error", "message": parse.error.rstrip()}
    settings = {name: list(v) if isinstance(v, tuple) else v for name, v in parse.settings.items()}
    warns = parse.backend == "cudaMallocAsync" and any(o.key.name != "backend" for o in parse.options)
    return start | {"outcome": "ok", "warns": warns} | settings


def recorded_outcome(case: dict) -> dict:
    """A recorded case without what only the recorder needs."""
    if case.get("undefined_behaviour"):
        return {name: case[name] for name in ("conf", "load_backend")} | {"outcome": "undefined"}
    return {k: v for k, v in case.items() if k not in {"rc", "cpp_type", "python_exception"}}
