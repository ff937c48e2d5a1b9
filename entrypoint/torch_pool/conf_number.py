"""Numbers as C++ `std::stoi`, `stoul`, `stoull` and `stod` read them, because that is what torch calls.

They skip leading white space, take a sign, ignore whatever follows the number, and know only ASCII digits.
Every function returns the value and whether the text is that number plainly written and nothing else.
"""

_DIGITS = "0123456789"
_HEX_DIGITS = "0123456789abcdef"
_SPACE = " \t\n\v\f\r"
_SMALLEST_NORMAL = 2.0**-1022
_WORD = 1 << 64


class BadNumberError(ValueError):
    """C++ throws here. The message is the name of the C++ function, which is all that torch shows."""


def stoi(text: str) -> tuple[int, bool]:
    """A 32-bit signed integer. Raises BadNumberError."""
    value, plain = _integer(text, "stoi")
    if not -(1 << 31) <= value < 1 << 31:
        raise BadNumberError("stoi")
    return value, plain


def unsigned(text: str, function: str) -> tuple[int, bool]:
    """A 64-bit unsigned integer by `stoul` or `stoull`: a minus sign wraps. Raises BadNumberError."""
    value, plain = _integer(text, function)
    if abs(value) >= _WORD:
        raise BadNumberError(function)
    return value % _WORD, plain


def stod(text: str) -> tuple[float, bool]:
    """A double, also in hexadecimal; infinite and not-a-number are values. Raises BadNumberError.

    glibc calls a result below the smallest normal double out of range, so every such text is refused.
    """
    sign, body = _sign(text)
    digits = _decimal_prefix(body)
    hexadecimal = _hexadecimal_prefix(body)
    word = next((w for w in ("infinity", "inf", "nan") if body.lower().startswith(w)), "")
    if hexadecimal:
        value = _from_hexadecimal(hexadecimal)
    elif digits:
        value = float(digits)
    elif word:
        return float(sign + word), False
    else:
        raise BadNumberError("stod")
    is_zero = not _mantissa(hexadecimal or digits).strip("0.x")
    if value == float("inf") or (value < _SMALLEST_NORMAL and not is_zero):
        raise BadNumberError("stod")
    return (-value if sign == "-" else value), text == digits


def _integer(text: str, function: str) -> tuple[int, bool]:
    sign, body = _sign(text)
    digits = _run(body, _DIGITS)
    if not digits:
        raise BadNumberError(function)
    significant = digits.lstrip("0")
    # Nothing longer than 20 digits is in any range here, and int() refuses more than 4300 of them.
    if len(significant) > 20:
        raise BadNumberError(function)
    value = int(significant or "0")
    return (-value if sign == "-" else value), text == (significant or "0")


def _sign(text: str) -> tuple[str, str]:
    body = text.lstrip(_SPACE)
    return (body[0], body[1:]) if body[:1] in {"+", "-"} else ("", body)


def _run(text: str, characters: str) -> str:
    """The longest start of `text` made of `characters` only."""
    return text[: len(text) - len(text.lstrip(characters))]


def _mantissa_prefix(text: str, characters: str) -> str:
    whole = _run(text, characters)
    rest = text[len(whole) :]
    part = _run(rest[1:], characters) if rest.startswith(".") else ""
    if not whole and not part:
        return ""
    return whole + rest[:1] + part if rest.startswith(".") else whole


def _exponent_prefix(text: str, letter: str) -> str:
    if text[:1] != letter:
        return ""
    sign = text[1:2] if text[1:2] in {"+", "-"} else ""
    digits = _run(text[1 + len(sign) :], _DIGITS)
    return letter + sign + digits if digits else ""


def _decimal_prefix(text: str) -> str:
    mantissa = _mantissa_prefix(text, _DIGITS)
    letter = text[len(mantissa) : len(mantissa) + 1]
    exponent = _exponent_prefix(text[len(mantissa) :], letter) if mantissa and letter in {"e", "E"} else ""
    return mantissa + exponent


def _hexadecimal_prefix(text: str) -> str:
    lower = text.lower()
    mantissa = _mantissa_prefix(lower[2:], _HEX_DIGITS) if lower.startswith("0x") else ""
    return "0x" + mantissa + _exponent_prefix(lower[2 + len(mantissa) :], "p") if mantissa else ""


def _from_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("inf")


def _mantissa(number: str) -> str:
    return number.partition("p")[0] if number.startswith("0x") else number.lower().partition("e")[0]
