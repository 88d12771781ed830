#!/usr/bin/env python3
"""examples/browser in a browser without a window, with a sound file as its microphone: the page must find speech in it.

    sequor serve --model-repository examples/pcm/repository --plugins-dir DIR --http-allowed-origins http://127.0.0.1:8090 &
    python3 tests/js/microphone.py --browser chromium-headless-shell --server 127.0.0.1:8000

It is no part of the tests that run every day: it takes as long as the sound. Prints one line; exit 1 if the page hears no speech.
"""

import argparse
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Presses the button, and says after a while what the page has heard.
PROBE = """
<script type="module">
  const say = (found) => fetch("/found", { method: "POST", body: JSON.stringify(found) });
  addEventListener("error", (event) => say({ error: event.message }));
  document.getElementById("server").value = "SERVER";
  document.getElementById("start").click();
  const until = performance.now() + SECONDS * 1000;
  const shades = new Set();
  let highest = 0;
  const look = () => {
    const now = document.getElementById("now").value;
    highest = Math.max(highest, Number(now.split("now ")[1] ?? 0));
    const canvas = document.getElementById("chart");
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    for (let at = 0; at < pixels.length; at += 52) if (pixels[at + 3]) shades.add(pixels[at]);
    if (performance.now() < until) setTimeout(look, 20);
    else say({ now, highest, windows: parseInt(now), shades: shades.size });
  };
  look();
</script>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", required=True)
    parser.add_argument("--server", default="127.0.0.1:8000")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--sound", default=ROOT / "models/vad/samples/speech.wav")
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    page = (ROOT / "examples/browser/index.html").read_text()
    page += PROBE.replace("SERVER", options.server).replace("SECONDS", str(options.seconds))
    found, done = {}, threading.Event()

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def do_POST(self):
            found.update(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_):
            pass

    pages = http.server.ThreadingHTTPServer(("127.0.0.1", options.port), Pages)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as profile:
        browser = subprocess.Popen([
            options.browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0",
            "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={options.sound}",
            "--autoplay-policy=no-user-gesture-required", f"--user-data-dir={profile}", f"http://127.0.0.1:{options.port}/",
        ], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        done.wait(options.seconds + 30)
        browser.terminate()
        browser.wait()
    good = found.get("highest", 0) > 0.9 and found.get("windows", 0) > options.seconds * 20 and found.get("shades", 0) > 1
    print(f"microphone: {found} after {time.monotonic() - began:.1f} s; {'speech is heard' if good else 'NO SPEECH'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
