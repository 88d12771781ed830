#!/usr/bin/env python3
"""Takes the voice activity model, its speech sample and their licences out of the wheels pinned in third_party/vad.txt.

The files are committed; this script says where they come from and makes them again, byte for byte. Needs pip and a package index only.

    fetch_vad.py              write the files in place
    fetch_vad.py --check      fetch and write nothing; exit 1 if a committed file has not the hash written here
"""

import hashlib
import io
import pathlib
import subprocess
import sys
import tempfile
import wave
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PINS = HERE.parent / "third_party" / "vad.txt"
# The piece of the 30 s recording that is kept: a second of silence, an onset, a pause, fluent speech.
CUT_FROM_S, CUT_TO_S = 6, 12


def whole(data):
    return data


def cut(data):
    with wave.open(io.BytesIO(data)) as sound:
        rate = sound.getframerate()
        if (sound.getnchannels(), sound.getsampwidth(), rate) != (1, 2, 16000):
            raise SystemExit("the recording is not 16 kHz, 16 bit, mono")
        sound.setpos(CUT_FROM_S * rate)
        piece = sound.readframes((CUT_TO_S - CUT_FROM_S) * rate)
    held = io.BytesIO()
    with wave.open(held, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(piece)
    return held.getvalue()


# what is kept: (its wheel, its path in there, what is done with it, the SHA-256 of the result)
FILES = {
    "vad/1/model.onnx": (
        "silero_vad", "silero_vad/data/silero_vad_16k_op15.onnx", whole,
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
    ),
    "vad/LICENSE.silero-vad": (
        "silero_vad", "silero_vad-6.2.3.dist-info/licenses/LICENSE", whole,
        "2e63e9a38b6e8fc0c7bc37ce174caca1862870856c6daf5697cfb785e925520b",
    ),
    "vad/samples/speech.wav": (
        "pyannote_audio", "pyannote/audio/sample/sample.wav", cut,
        "a0ede8bab4bf5ff63666cfc4ebcd188d92571e37eaf4f598e2a533d56b7027ac",
    ),
    "vad/samples/LICENSE.pyannote-audio": (
        "pyannote_audio", "pyannote_audio-4.0.7.dist-info/licenses/LICENSE", whole,
        "a3b53644a76e70e289b25271b119c0a1aadaaf0db7a16225fb494fdc0e36c32a",
    ),
}


def fetch(folder):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    # The wheels hold Python code, but only files are taken: what version of Python they ask for does not matter.
    pip += ["--python-version", "3.11", "--require-hashes", "--requirement", str(PINS), "--dest", folder]
    subprocess.run(pip, check=True)
    return {path.name.split("-")[0]: zipfile.ZipFile(path) for path in pathlib.Path(folder).glob("*.whl")}


def taken():
    """What the wheels give, by the path it is kept under."""
    with tempfile.TemporaryDirectory() as folder:
        wheels = fetch(folder)
        return {path: keep(wheels[wheel].read(member)) for path, (wheel, member, keep, _) in FILES.items()}


def held():
    """What the repository holds."""
    return {path: (HERE / path).read_bytes() if (HERE / path).is_file() else b"" for path in FILES}


def main():
    check, wrong = sys.argv[1:] == ["--check"], 0
    for path, data in (held() if check else taken()).items():
        sha256 = FILES[path][3]
        good = hashlib.sha256(data).hexdigest() == sha256
        if good and not check:
            (HERE / path).parent.mkdir(parents=True, exist_ok=True)
            (HERE / path).write_bytes(data)
        wrong += not good
        print(f"{'ok' if good else 'DIFFERS':8}{sha256}  models/{path}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
