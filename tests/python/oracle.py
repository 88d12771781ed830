"""Model configurations in protobuf text format, made up from a seed, and what protobuf itself makes of them.

One line of JSON for each: the text, and either the message in protobuf's wire format (hex) or the sentence with which it was
refused, and where.
About half of the texts are spoiled: a token is lost, doubled, exchanged or put in. `tests/it/oracle.rs` reads the same texts and compares.
"""

import argparse
import json
import random
import re
import string
import sys

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor as F
from tritonclient.grpc import model_config_pb2

INTEGERS = {
    F.TYPE_INT32: (-(2**31), 2**31 - 1),
    F.TYPE_INT64: (-(2**63), 2**63 - 1),
    F.TYPE_UINT32: (0, 2**32 - 1),
    F.TYPE_UINT64: (0, 2**64 - 1),
}
FLOATS = ["0", "1", "-1", "1.5", ".5", "2.", "1e3", "-2.5E-3", "1f", "1.5F", "inf", "-inf", "nan", "0.1", "3.4e38", "1e-45", "1e40"]
BOOLS = ["true", "false", "True", "False", "t", "f", "0", "1"]
SEPARATORS = ["", "", "", "", ",", ";"]
SPACES = [" ", " ", " ", "\n", "\n  ", "\t", "  ", " # a [ comment { with \"marks\"\n", "\r\n"]
TOKEN = re.compile(r"""[A-Za-z_][A-Za-z0-9_]*|-?[0-9.][0-9A-Za-z.+-]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*|\S""")
INTRUDERS = ["{", "}", "[", "]", "<", ">", ":", ",", ";", "-", "#", "'", '"', "name", "dims", "input", "0", "-1", "08", "0x", "0x1G",
             "1.5", "1e", "'\\x'", "'\\400'", "'\\ud800'", "'\\U00110000'", "true", "TYPE_FP32", "nil", "[a.b]", "99999999999999999999",
             "[inference.x]: 1", "any { }", "/", "=", "\u00e9", "\\", "1 2", "- 1", "''", ".", "+1", "0b1", "1_0", "TYPE_NONE", "77"]


class Maker:
    def __init__(self, seed):
        self.chance = random.Random(seed)

    def one(self, of):
        return self.chance.choice(of)

    def maybe(self, share):
        return self.chance.random() < share

    def space(self):
        return self.one(SPACES)

    def text(self, descriptor, depth=0):
        """The fields of a message, each in one of its spellings."""
        parts, taken = [], set()
        fields = list(descriptor.fields)
        share = min(0.6, 4 / max(1, len(fields))) if depth else 0.25
        for field in self.chance.sample(fields, len(fields)):
            if not self.maybe(share) or (depth > 6 and field.message_type):
                continue
            oneof = field.containing_oneof
            if oneof is not None and oneof.name in taken and not self.maybe(0.005):
                continue
            if oneof is not None:
                taken.add(oneof.name)
            parts.extend(self.field(field, depth))
            if self.maybe(0.002) and not field.is_repeated:
                parts.extend(self.field(field, depth))
        return "".join(part + self.one(SEPARATORS) + self.space() for part in parts)

    def field(self, field, depth):
        """One field: the texts that say it."""
        name = field.name + self.one(["", "", " ", "\n"])
        if not field.is_repeated:
            return [name + self.colon(field) + self.value(field, depth)]
        values = [self.value(field, depth) for _ in range(self.chance.choice([0, 1, 1, 2, 3]))]
        if self.maybe(0.5):
            return [name + self.colon(field) + value for value in values]
        comma = self.one([",", ", ", " ,\n"])
        return [name + self.colon(field) + "[" + self.space() + comma.join(values) + self.space() + "]"]

    def colon(self, field):
        # Optional before messages, required before anything else; left out now and then, to be refused.
        optional = field.message_type is not None
        if optional or self.maybe(0.002):
            return self.one(["", " ", ":", ": "])
        return self.one([":", ": ", " : "])

    def value(self, field, depth):
        if field.message_type is not None:
            left, right = self.one(["{}", "{}", "<>"])
            return left + self.space() + self.text(field.message_type, depth + 1) + right
        if field.enum_type is not None:
            value = self.one(field.enum_type.values)
            return self.one([value.name, value.name, str(value.number)])
        if field.type in INTEGERS:
            return self.integer(*INTEGERS[field.type])
        if field.type in (F.TYPE_FLOAT, F.TYPE_DOUBLE):
            return self.one(FLOATS)
        if field.type == F.TYPE_BOOL:
            return self.one(BOOLS)
        return self.quoted()

    def integer(self, least, most):
        value = self.one([0, 1, 2, 8, 255, self.chance.randint(0, 10**6), least, most, -1])
        if value < least:
            value = 0
        if self.maybe(0.002):
            value = self.one([least - 1, most + 1])
        sign, size = ("-", -value) if value < 0 else ("", value)
        return sign + self.one([str(size), str(size), str(size), hex(size), "0" + oct(size)[2:], hex(size).upper().replace("X", "x")])

    def quoted(self):
        return self.one(["", " ", "\n"]).join(self.string() for _ in range(self.one([1, 1, 1, 2, 3])))

    def string(self):
        mark = self.one("\"'")
        letters = string.ascii_letters + string.digits + " _-./:[]{}<>#,;\u00e9\u4e2d"
        # Not "\\?": Python keeps its backslash, against the format.
        escapes = ["\\n", "\\t", "\\\\", "\\'", '\\"', "\\x41", "\\101", "\\7", "\\u00e9", "\\U0001F600", "\\a", "\\b", "\\f", "\\r", "\\v",
                   "\"" if mark == "'" else "'"]
        parts = [self.one(escapes) if self.maybe(0.1) else self.one(letters) for _ in range(self.chance.randint(0, 8))]
        return mark + "".join(parts) + mark

    def spoil(self, text):
        """Takes one or two tokens amiss."""
        for _ in range(self.one([1, 1, 2])):
            tokens = list(TOKEN.finditer(text))
            if not tokens:
                return text + self.one(INTRUDERS)
            token = self.one(tokens)
            start, end = token.span()
            how = self.one(["lose", "double", "exchange", "put", "cut", "letter"])
            if how == "lose":
                text = text[:start] + text[end:]
            elif how == "double":
                text = text[:end] + " " + text[start:]
            elif how == "exchange":
                text = text[:start] + self.one(INTRUDERS) + text[end:]
            elif how == "put":
                text = text[:start] + self.one(INTRUDERS) + " " + text[start:]
            elif how == "cut":
                text = text[: self.chance.randint(start, end)]
            else:
                at = self.chance.randint(start, end - 1)
                text = text[:at] + self.one(string.printable[:95]) + text[at + 1 :]
        return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5000)
    arguments = parser.parse_args()
    maker = Maker(arguments.seed)
    for number in range(arguments.count):
        text = maker.space().lstrip("#") + maker.text(model_config_pb2.ModelConfig.DESCRIPTOR)
        if number % 2:
            text = maker.spoil(text)
        line = {"text": text}
        try:
            message = text_format.Parse(text, model_config_pb2.ModelConfig())
            line["message"] = message.SerializeToString(deterministic=True).hex()
        except (text_format.ParseError, ValueError) as error:
            line["refused"] = str(error)
            if isinstance(error, text_format.ParseError):
                line["place"] = [error.GetLine(), error.GetColumn()]
        json.dump(line, sys.stdout)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
