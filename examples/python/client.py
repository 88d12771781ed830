"""Speech in, probabilities out: tritonclient and nothing of ours. Needs `pip install tritonclient[grpc]` and a server of the repository's models."""

import sys
import wave

import numpy as np
import tritonclient.grpc as t

address = sys.argv[1] if len(sys.argv) > 1 else "localhost:8001"
path = sys.argv[2] if len(sys.argv) > 2 else "models/vad/samples/speech.wav"
with wave.open(path) as sound:  # 16 kHz, 16 bit, mono
    samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768

context = np.concatenate([np.zeros(64, np.float32), samples])
chunks = [context[i : i + 576] for i in range(0, len(samples) - 511, 512)]  # 64 samples of context + 512

client = t.InferenceServerClient(address)
for i, chunk in enumerate(chunks):
    x = t.InferInput("input", [1, 576], "FP32")
    x.set_data_from_numpy(chunk[None])
    r = client.infer("vad", [x], sequence_id=7, sequence_start=i == 0, sequence_end=i == len(chunks) - 1)
    print(f"{i * 0.032:6.2f} s  {r.as_numpy('output')[0, 0]:.3f}")
