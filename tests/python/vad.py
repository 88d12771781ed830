"""The voice activity model outside the server: sounds read as chunks, and ONNX Runtime run on them with the state carried along by hand."""

import pathlib
import wave

import numpy as np
import onnxruntime

REPOSITORY = pathlib.Path(__file__).resolve().parents[2] / "models"
SAMPLES = REPOSITORY / "vad" / "samples"
MODEL = REPOSITORY / "vad" / "1" / "model.onnx"
CHUNK, CONTEXT = 512, 64


def read_wav(path):
    """A 16 bit sound as FP32 at 16 kHz, mono. 48 kHz is averaged over three samples and every third is taken."""
    with wave.open(str(path)) as sound:
        if sound.getsampwidth() != 2:
            raise SystemExit(f"{path}: not 16 bit")
        rate, samples = sound.getframerate(), np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
        samples = samples.reshape(-1, sound.getnchannels())[:, 0].astype(np.float32) / np.float32(32768)
    if rate == 48000:
        samples = samples[: len(samples) // 3 * 3].reshape(-1, 3).mean(axis=1, dtype=np.float32)
    elif rate != 16000:
        raise SystemExit(f"{path}: {rate} Hz, wanted 16000 or 48000")
    return samples


def chunks(samples):
    """[steps, 576]: each chunk of 512 samples behind the 64 samples before it; what is left over at the end is dropped."""
    steps = len(samples) // CHUNK
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), samples])
    return np.stack([padded[i * CHUNK : i * CHUNK + CONTEXT + CHUNK] for i in range(steps)])


class Vad:
    """The model with one thread, as the server runs it."""

    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.model = onnxruntime.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])

    def step(self, rows, state):
        """One chunk of each row: [B, 576], [2, B, 128] -> [B], [2, B, 128]."""
        feeds = {"input": rows, "state": state, "sr": np.array(16000, np.int64)}
        output, state = self.model.run(["output", "stateN"], feeds)
        return output[:, 0], state

    def whole(self, rows):
        """A whole sound by itself: [steps, 576] -> [steps]."""
        state, answers = np.zeros((2, 1, 128), np.float32), []
        for row in rows:
            answer, state = self.step(row[None], state)
            answers.append(answer[0])
        return np.array(answers, np.float32)
