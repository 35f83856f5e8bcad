#!/usr/bin/env python3
"""REDbot, curl, h2load and slowhttptest against a running server; `.ci/extra conformance` installs them and calls this.

look.py DOCWHARF FOLDER; FOLDER has the site in `site/` and REDbot's environment in `redbot/`. Ends with 1 if a tool has
found what it should not.
"""

import csv
import email.parser
import email.policy
import json
import pathlib
import subprocess
import sys
import time

DOCWHARF, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
wrong = []


def run(*command, check=True, **more):
    return subprocess.run([str(word) for word in command], check=check, capture_output=True, **more)


def found(tool, what, is_right, detail=""):
    print(f"{'ok' if is_right else 'FAILED'} {tool}: {what}{'' if is_right else f': {detail}'}", flush=True)
    if not is_right:
        wrong.append(what)


def serve():
    child = subprocess.Popen([DOCWHARF, "serve", FOLDER / "site", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE)
    return child, child.stdout.readline().decode().strip().rstrip("/")


# REDbot -------------------------------------------------------------------------------------------------------------

# What REDbot may say at the level "warn", and why that is as it should be.
KNOWN = {}


def redbot(base):
    pages = ["/", "/guides/vm", "/guides/vm.html", "/assets/style.css", "/assets/mark.svg", "/assets/main.0ab12cd3.js",
             "/sitemap.xml", "/llms.txt", "/favicon.ico", "/files/large.png", "/nowhere", "/nowhere.js", "/guides/vm/"]
    for page in pages:
        # REDbot gives up on bodies above a limit of its own; what it says of the fields counts all the same.
        out = run(FOLDER / "redbot/bin/redbot", "-o", "har", base + page, check=False, timeout=120).stdout
        entry = json.loads(out)["log"]["entries"][0]
        notes = [note for note in entry["_red_messages"] if note["level"].upper() in ("BAD", "WARN")]
        bad = [note["summary"] for note in notes if note["note_id"] not in KNOWN]
        found("redbot", f"{page}: {len(entry['_red_messages'])} notes", not bad, bad)


# curl ---------------------------------------------------------------------------------------------------------------

def fetch(url, *more):
    """Status, fields and body of one request; of several answers the last."""
    out = run("curl", "-sS", "-i", "--path-as-is", "--max-time", "60", *more, url).stdout
    while True:
        head, _, rest = out.partition(b"\r\n\r\n")
        if not rest.startswith(b"HTTP/") or b" 10" not in head.split(b"\r\n")[0]:
            break
        out = rest
    lines = head.decode().split("\r\n")
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        fields.setdefault(name.lower(), []).append(value.strip())
    return int(lines[0].split()[1]), fields, rest


def curl(base):
    for target in ["/", "/guides/vm", "/guides/vm/", "/assets/style.css", "/nowhere", "/nowhere.js", "/files/large.png"]:
        for more in [(), ("-H", "Accept-Encoding: gzip"), ("-r", "0-99"), ("-r", "0-9,20-29"), ("-I",)]:
            answers = []
            for version in ["--http1.1", "--http2-prior-knowledge"]:
                status, fields, body = fetch(base + target, version, *more)
                for name in ["date", "connection", "keep-alive"]:
                    fields.pop(name, None)
                answers.append((status, fields, body))
            what = f"{target} {' '.join(more)} over HTTP/1.1 and HTTP/2"
            found("curl --http2-prior-knowledge", what, answers[0] == answers[1], [a[:2] for a in answers])

    secret = pathlib.Path("/etc/passwd").read_bytes().splitlines()[0]
    up, tried = ["..", "%2e%2e", "%2E.", ".%2e", "..%00", "..;"], 0
    strange = []
    for dots in up:
        for slash in ["/", "//", "%2f", "%2F", "\\", "%5c", "/./"]:
            for start in ["/", "/guides/", "//", "/assets/style.css/"]:
                for end in ["etc/passwd", "etc/passwd/", "etc/passwd?x", "proc/self/environ"]:
                    for version in ["--http1.1", "--http2-prior-knowledge"]:
                        target = start + (dots + slash) * 8 + end
                        if dots != ".." and version != "--http1.1":
                            continue
                        tried += 1
                        status, _, body = fetch(base + target, version)
                        if status not in (400, 404) or secret in body or b"PATH=" in body:
                            strange.append((target, status))
    found("curl --path-as-is", f"{tried} spellings of a way out", not strange, strange[:5])

    # The parser of another: are the parts what they say?
    for target, coding in [("/assets/style.css", "identity"), ("/assets/style.css", "gzip"), ("/files/large.png", "gzip")]:
        accept = ("-H", f"Accept-Encoding: {coding}")
        _, _, whole = fetch(base + target, *accept)
        n = len(whole)
        status, fields, body = fetch(base + target, *accept, "-r", f"0-9,100-299,{n - 7}-")
        head = f"Content-Type: {fields['content-type'][0]}\r\n\r\n".encode()
        parts = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body).get_payload()
        said = [part["content-range"] for part in parts]
        expected = [(0, 10), (100, 300), (n - 7, n)]
        right = status == 206 and said == [f"bytes {start}-{end - 1}/{n}" for start, end in expected]
        # The parser takes text apart by lines, so bytes are compared where it has found them.
        right = right and all(whole[start:end] in body for start, end in expected)
        found("curl -r", f"three parts of {target}, {coding}", right and len(body) <= n + 600, (status, said))


# h2load ------------------------------------------------------------------------------------------------------------

def h2load(base, what, *more):
    out = run("h2load", *more, base + "/guides/vm", base + "/assets/style.css", timeout=300).stdout.decode()
    line = next(line for line in out.splitlines() if line.startswith("requests:"))
    codes = next(line for line in out.splitlines() if line.startswith("status codes:"))
    rate = next(line for line in out.splitlines() if line.startswith("finished in"))
    total = line.split()[1]
    right = f"{total} succeeded, 0 failed, 0 errored, 0 timeout" in line and f"{total} 2xx" in codes
    found("h2load", f"{what}: {rate}", right, f"{line} {codes}")


def p99(base):
    """The 99th percentile of the times of answers in ms, the best of three: the machine has other things to do."""
    best = []
    for n in range(3):
        log = FOLDER / f"times-{n}"
        log.unlink(missing_ok=True)
        run("h2load", "--h1", "-n", "20000", "-c", "8", f"--log-file={log}", base + "/guides/vm", timeout=300)
        times = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
        best.append(times[len(times) * 99 // 100] / 1000)
    return min(best)


# slowhttptest --------------------------------------------------------------------------------------------------------

SLOW = {
    "slow headers": ["-H", "-i", "5"],
    "slow bodies": ["-B", "-i", "5", "-s", "8192"],
    "slow readers": ["-X", "-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"],
    "many ranges": ["-R", "-a", "10", "-b", "3000"],
}


def slowhttptest(base, how, more, connections, seconds, wait=True):
    out = FOLDER / how.replace(" ", "-")
    command = ["slowhttptest", *more, "-c", connections, "-r", "200", "-l", seconds, "-p", "3", "-x", "24", "-g", "-o", out]
    target = "/files/large.png" if how in ("slow readers", "many ranges") else "/guides/vm"
    command = [str(word) for word in [*command, "-u", base + target]]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not wait:
        return child
    child.wait()
    with open(f"{out}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    column = next(name for name in rows[0] if "vailable" in name)
    away = [row for row in rows if float(row[column]) <= 0]
    found("slowhttptest", f"{how}: {connections} connections, available in {len(rows) - len(away)} of {len(rows)} looks",
          rows and not away, away[:3])
    return child


def main():
    child, base = serve()
    descriptors = lambda: len(list(pathlib.Path(f"/proc/{child.pid}/fd").iterdir()))
    try:
        redbot(base)
        curl(base)
        h2load(base, "HTTP/2", "-n", "50000", "-c", "20", "-m", "50")
        h2load(base, "HTTP/1.1", "--h1", "-n", "50000", "-c", "20")
        h2load(base, "HTTP/2, 64 KiB windows", "-n", "5000", "-c", "50", "-m", "100", "-w", "16", "-W", "16")
        before = descriptors()
        for how, more in SLOW.items():
            slowhttptest(base, how, more, 500, 15)
        # Whoever is slow or idle costs the others nothing: 500 that have not finished their heads, 50 that hardly read.
        alone = p99(base)
        holding = [slowhttptest(base, "slow headers", SLOW["slow headers"], 500, 120, wait=False),
                   slowhttptest(base, "slow readers", SLOW["slow readers"], 50, 120, wait=False)]
        deadline = time.time() + 30
        while descriptors() < before + 500 and time.time() < deadline:
            time.sleep(0.1)
        held = descriptors() - before
        beside = p99(base)
        for one in holding:
            one.terminate()
            one.wait()
        found("h2load", f"p99 {alone:.2f} ms alone, {beside:.2f} ms beside {held} slow connections",
              held >= 500 and beside <= 2 * max(alone, 0.2), "more than twice" if held >= 500 else "they did not hold")
        deadline = time.time() + 90
        while descriptors() > before + 5 and time.time() < deadline:
            time.sleep(0.5)
        found("slowhttptest", f"descriptors: {before} before, {descriptors()} after", descriptors() <= before + 5)
        found("docwharf", "still serves", fetch(base + "/")[0] == 200)
    finally:
        child.terminate()
        code = child.wait(timeout=20)
    found("docwharf", "ends with 0", code == 0, code)
    sys.exit(1 if wrong else 0)


main()
