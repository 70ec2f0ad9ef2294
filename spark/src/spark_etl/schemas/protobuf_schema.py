"""A message of Protobuf, as columns.

Its descriptors are those that protoc makes of a schema of a registry (registry/protobuf.py). What runs on executors
gets them, and the fields, by value.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

Scalar = Literal["bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes", "enum"]
Kind = Scalar | Literal["message", "timestamp", "wrapper", "json", "map"]
SPARK_TYPES: dict[str, str] = {
    "bool": "BOOLEAN",
    "int32": "INT",
    "int64": "BIGINT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20, 0)",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
    "enum": "STRING",
    "timestamp": "TIMESTAMP",
    "json": "STRING",
}


@dataclass(frozen=True)
class ProtoField:
    """A field of a message; the key and the value of a map are fields too."""

    name: str
    kind: Kind
    repeated: bool = False
    #: Whether a message knows if it has the field: absent, it is null.
    presence: bool = False
    #: The fields of a message; key and value of a map; the value of a wrapper.
    fields: tuple["ProtoField", ...] = ()
    #: Numbers and names of an enum.
    symbols: tuple[tuple[int, str], ...] = ()

    @property
    def spark_type(self) -> str:
        inner = self._one
        return f"ARRAY<{inner}>" if self.repeated else inner

    @property
    def _one(self) -> str:
        match self.kind:
            case "message":
                return f"STRUCT<{', '.join(f'`{each.name}`: {each.spark_type}' for each in self.fields)}>"
            case "map":
                return f"MAP<{self.fields[0].spark_type}, {self.fields[1].spark_type}>"
            case "wrapper":
                return self.fields[0].spark_type
        return SPARK_TYPES[self.kind]


class ProtobufSchema(BaseModel):
    model_config = ConfigDict(frozen=True)

    #: Full name of the message.
    message: str
    #: A FileDescriptorSet in Base64.
    descriptors: str
    root: ProtoField

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.root.fields]
