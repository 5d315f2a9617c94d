"""A scripted gpt2d for tests of gpt2ctl: replies as a test defines, and can misbehave.

Methods are functions (params, connection) -> result; they may raise Refused, send events with
connection.notify, or end the connection with connection.close.
"""

import json
import os
import socket
import threading

PROTOCOL = 1
TERMINAL = ("done", "failed", "cancelled", "interrupted")


class Refused(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def run_object(id=1, name="demo", state="queued", **more):
    return {"id": id, "name": name, "uid": os.getuid(), "state": state, "reason": None, "gpus": 2, "segments": 1,
        "segments_done": 0, "attempt": 1, "restart": False, "timeout_s": 0, "spec_sha256": "ab" * 32,
        "submitted_at": "2026-01-08T19:50:57.123Z", "started_at": None, "ended_at": None,
        "dir": f"/state/runs/{id}-{name}", **more}


class Connection:
    def __init__(self, sock):
        self.sock = sock
        self.lock = threading.Lock()

    def send(self, text):
        with self.lock:
            self.sock.sendall(text if isinstance(text, bytes) else text.encode())

    def send_object(self, value):
        self.send(json.dumps(value) + "\n")

    def notify(self, method, **params):
        self.send_object({"jsonrpc": "2.0", "method": method, "params": params})

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class FakeDaemon:
    def __init__(self, path, **methods):
        self.path = str(path)
        self.pid = os.getpid()
        self.started_at = "2026-01-08T19:49:12.004Z"
        self.methods = {"hello": self.hello, "version": self.version, **methods}
        self.requests = []
        self.listener = None
        self.connections = []
        self.threads = []

    def hello(self, params, connection):
        return {"protocol": PROTOCOL, "build": "fake", "version": "0.1.0", "pid": self.pid,
            "started_at": self.started_at, "uid": os.getuid(), "engine": "fake", "ranks": 2}

    def version(self, params, connection):
        return {"protocol": PROTOCOL, "build": "fake", "version": "0.1.0", "libraries": {"libevent": "2.1"}}

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        thread = threading.Thread(target=self.accept, args=(self.listener,), daemon=True)
        thread.start()
        self.threads.append(thread)
        return self

    def accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            connection = Connection(sock)
            self.connections.append(connection)
            thread = threading.Thread(target=self.serve, args=(connection,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def serve(self, connection):
        try:
            with connection.sock.makefile("rb") as lines:
                for line in lines:
                    self.answer(json.loads(line), connection)
        except (OSError, ValueError):
            pass
        connection.close()

    def answer(self, request, connection):
        if "spec" in request["params"]:
            request["params"]["spec"] = json.loads(request["params"]["spec"])
        self.requests.append((request["method"], request["params"]))
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        connection.after = None
        try:
            reply["result"] = self.methods[request["method"]](request["params"], connection)
        except KeyError:
            reply["error"] = {"code": -32601, "message": f"{request['method']}: no such method"}
        except Refused as refused:
            reply["error"] = {"code": refused.code, "message": refused.message}
            if refused.data is not None:
                reply["error"]["data"] = refused.data
        connection.send_object(reply)
        if connection.after:
            connection.after()

    def asked(self, method):
        return [params for name, params in self.requests if name == method]

    def stop(self):
        """Like a daemon that was killed: the socket file stays."""
        if self.listener:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        for connection in self.connections:
            connection.close()
        for thread in self.threads:
            thread.join(10)
        self.connections, self.threads = [], []

    def __enter__(self):
        return self.start()

    def __exit__(self, *what):
        self.stop()


def follow_script(run, events, then=None):
    """A "follow" method: the run, then events (method, params), then the test's own steps."""
    def follow(params, connection):
        def after():
            for method, more in events:
                connection.notify(method, id=run["id"], at="2026-01-08T19:51:00.000Z", **more)
            if then:
                then(connection)
        connection.after = after
        return {"run": run, "progress": None, "seq": 0, "first": 1}
    return follow
