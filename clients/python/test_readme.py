"""The commands and the programs of the README, with other paths and ports than those that it names."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

from cluster import BINARY, free_ports
from percolator_client import Client


class ReadmeTest(unittest.TestCase):
    def test_examples_print_what_it_says(self):
        with open("README.md", encoding="utf-8") as file:
            text = file.read()
        with tempfile.TemporaryDirectory() as scratch:
            port = free_ports(1)[0]
            gateway = f"127.0.0.1:{port + 4}"
            for old, new in (
                ("/tmp", scratch),
                ("127.0.0.1:7804", gateway),
                ("make build\n", ""),
                ("bin/percolator start", f"exec {BINARY} start --listen 127.0.0.1:{port} --http ''"),
                (" &\n", "\n"),
                ("clients/python python3", f"{os.getcwd()} {sys.executable}"),
            ):
                self.assertIn(old, text)
                text = text.replace(old, new)
            blocks = [body for _, body in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)]
            start, transfer, run_transfer, transfer_prints, shout, run_shout, shout_prints, watch = blocks
            node = subprocess.Popen(["bash", "-c", start], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                with Client([gateway]) as db:
                    db.create_table("ready", timeout=60)
                for name, program, command, prints in (
                    ("transfer.py", transfer, run_transfer, transfer_prints),
                    ("shout.py", shout, run_shout, shout_prints),
                    ("watch.py", transfer + watch + "    break\n", "\n" + run_transfer, "alice 80"),
                ):
                    with open(os.path.join(scratch, name), "w", encoding="utf-8") as file:
                        file.write(program)
                    command = command.replace("transfer.py", name)
                    ran = subprocess.run(["bash", "-ec", command], cwd=scratch, capture_output=True, text=True, timeout=60)
                    self.assertEqual(ran.returncode, 0, ran.stderr)
                    self.assertIn(prints, ran.stdout)
            finally:
                node.kill()
                node.wait()


if __name__ == "__main__":
    unittest.main()
