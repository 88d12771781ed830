#!/usr/bin/env python3
"""Raw PCM through a processor: packets of 1, 20, 32 and 100 ms and the whole file give the same probabilities bit for bit, one call a packet, on a gRPC stream
and over a WebSocket. They are those of ONNX Runtime on the windows cut here.

Prints one line; exit 1 on any mismatch.
"""

import base64
import json
import os
import queue
import socket
import struct
import sys
import time
import wave

import numpy as np
import onnxruntime
import tritonclient.grpc

from server import Api, addresses
from vad import CHUNK, CONTEXT, SAMPLES, Vad

RATE, PACKETS = 16_000, (1, 20, 32, 100, None)
FIRST_ID = 7_000_000
# Steps sent on a stream before their answers are read.
AHEAD = 64


def pcm(path):
    with wave.open(str(path)) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (RATE, 1, 2), path
        return np.frombuffer(sound.readframes(sound.getnframes()), "<i2")


def windows(samples):
    """[steps, 576]: each 512 samples behind the 64 before them; silence completes the last."""
    samples = samples.astype(np.float32) / np.float32(32768)
    steps = -(-len(samples) // CHUNK)
    padded = np.zeros(CONTEXT + steps * CHUNK, np.float32)
    padded[CONTEXT:CONTEXT + len(samples)] = samples
    return np.stack([padded[i * CHUNK:i * CHUNK + CONTEXT + CHUNK] for i in range(steps)])


def packets(samples, millis):
    size = RATE // 1000 * millis if millis else len(samples)
    return [samples[at:at + size] for at in range(0, len(samples), size)]


def by_calls(options, number, parts):
    api, heard = Api("grpc", options.grpc), []
    for step, part in enumerate(parts):
        answer = api.infer(options.model, {"AUDIO": part}, sequence_id=number, sequence_start=step == 0)
        heard.append(answer.as_numpy("output")[:, 0])
    end = api.client.infer(options.model, [], sequence_id=number, sequence_end=True)
    rest = end.as_numpy("output")
    return np.concatenate([*heard, *([] if rest is None else [rest[:, 0]])])


def by_stream(options, number, parts):
    client, replies, heard = tritonclient.grpc.InferenceServerClient(options.grpc), queue.Queue(), []
    client.start_stream(callback=lambda result, error: replies.put((result, error)))

    def hear():
        result, error = replies.get(timeout=60)
        if error:
            raise SystemExit(f"stream: {error}")
        rows = result.as_numpy("output")
        heard.append(np.empty(0, np.float32) if rows is None else rows[:, 0])

    for step, part in enumerate([*parts, None]):
        inputs = []
        if part is not None:
            inputs = [tritonclient.grpc.InferInput("AUDIO", [len(part)], "INT16")]
            inputs[0].set_data_from_numpy(part)
        client.async_stream_infer(options.model, inputs, sequence_id=number, sequence_start=step == 0, sequence_end=part is None)
        # The server queues a bounded number of a sequence's steps, so no more than these are ahead of the answers.
        if step >= AHEAD:
            hear()
    while len(heard) <= len(parts):
        hear()
    client.stop_stream()
    client.close()
    return np.concatenate(heard)


class WebSocket:
    """Enough of RFC 6455 for messages of one frame."""

    def __init__(self, address, path):
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET {path} HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        self.socket.sendall(f"{head}sec-websocket-key: {key}\r\nsec-websocket-version: 13\r\n\r\n".encode())
        self.file = self.socket.makefile("rb")
        if b" 101 " not in (status := self.file.readline()):
            raise SystemExit(f"WebSocket: {status}")
        while self.file.readline().strip():
            pass

    def send(self, message):
        size = len(message)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 65536 else b"\xff" + struct.pack(">Q", size)
        # A mask of zeros changes nothing.
        self.socket.sendall(b"\x82" + length + b"\0\0\0\0" + message)

    def receive(self):
        kind, size = self.file.read(2)
        size = {126: lambda: struct.unpack(">H", self.file.read(2))[0], 127: lambda: struct.unpack(">Q", self.file.read(8))[0]}.get(size, lambda: size)()
        return kind & 15, self.file.read(size)

    def close(self):
        self.file.close()
        self.socket.close()


def by_websocket(options, number, parts):
    web, heard = WebSocket(options.http, f"/v2/models/{options.model}/stream"), []
    for step, part in enumerate([*parts, None]):
        parameters = {"sequence_id": number, "sequence_start": step == 0, "sequence_end": part is None, "binary_data_output": True}
        inputs, raw = [], b""
        if part is not None:
            raw = part.tobytes()
            inputs = [{"name": "AUDIO", "shape": [len(part)], "datatype": "INT16", "parameters": {"binary_data_size": len(raw)}}]
        head = json.dumps({"parameters": parameters, "inputs": inputs}).encode()
        web.send(struct.pack("<I", len(head)) + head + raw)
        # One ahead, so that neither side waits for room.
        if step:
            heard.append(rows(web.receive()))
    heard.append(rows(web.receive()))
    web.close()
    return np.concatenate(heard)


def rows(message):
    kind, data = message
    if kind == 1:
        answer = json.loads(data)
        if "error" in answer:
            raise SystemExit(f"WebSocket: {answer}")
        return np.array([v for output in answer.get("outputs", []) for v in output.get("data", [])], np.float32)
    size = struct.unpack_from("<I", data)[0]
    return np.frombuffer(data[4 + size:], "<f4")


def main():
    parser = addresses(__doc__)
    parser.add_argument("--model", default="vad_pcm", help="default %(default)s")
    options = parser.parse_args()
    vad, wrong, count, number = Vad(), [], 0, FIRST_ID
    began, took = time.monotonic(), []
    for path in sorted(SAMPLES.glob("*.wav")):
        samples = pcm(path)
        want = vad.whole(windows(samples))
        for way in (by_calls, by_stream, by_websocket):
            for millis in PACKETS:
                number += 1
                heard = way(options, number, packets(samples, millis))
                count += len(heard)
                if heard.dtype != np.float32 or not np.array_equal(heard, want):
                    differ = f"{len(heard)} answers, not {len(want)}" if len(heard) != len(want) else f"{(heard != want).sum()} of {len(want)} differ"
                    wrong.append(f"{path.name}, {way.__name__}, packets of {millis or 'everything'}: {differ}")
        took.append(time.monotonic() - began)
    for fault in wrong:
        print(fault, file=sys.stderr)
    sizes = ", ".join(f"{millis} ms" if millis else "whole" for millis in PACKETS)
    print(
        f"pcm: {len(took)} sounds, packets of {sizes} by calls, streams and WebSockets: {count} probabilities in {took[-1]:.1f} s, equal to ONNX Runtime "
        f"{onnxruntime.__version__} on windows cut by hand bit for bit; wrong: {len(wrong)}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
