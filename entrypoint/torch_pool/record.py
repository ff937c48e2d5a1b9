"""Immutable records without the cost of `typing`.

`import typing` more than doubles the start of a bare interpreter (7 to 19 ms where it was measured), and the
start path is made of records. Type checkers see the real `typing.NamedTuple`; at run time this class gives
the part of it that we use: fields in order, defaults, keywords, equality, `_replace`, `_asdict`.
"""

__all__ = ["TYPE_CHECKING", "NamedTuple"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class NamedTuple(tuple):
        __slots__ = ()
        _fields: tuple[str, ...] = ()

        def __init_subclass__(cls) -> None:
            cls._fields = tuple(cls.__annotations__)
            cls._field_defaults = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}
            for place, name in enumerate(cls._fields):
                setattr(cls, name, property(lambda self, place=place: self[place]))

        def __new__(cls, *values: object, **named: object) -> object:
            given = dict(zip(cls._fields, values, strict=False))
            twice_or_unknown = [name for name in named if name in given or name not in cls._fields]
            if len(values) > len(cls._fields) or twice_or_unknown:
                raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
            whole = cls._field_defaults | given | named
            missing = [name for name in cls._fields if name not in whole]
            if missing:
                raise TypeError(f"{cls.__name__} lacks {', '.join(missing)}")
            return tuple.__new__(cls, [whole[name] for name in cls._fields])

        def __getnewargs__(self) -> tuple[object, ...]:
            return tuple(self)

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"

        def _asdict(self) -> dict[str, object]:
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **changes: object) -> "NamedTuple":
            return type(self)(**(self._asdict() | changes))
