#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of fermata-stress: a run that would do nothing, or other than it was told, is refused. Usage: PROGRAM."""
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)


class Usage(unittest.TestCase):
    def expect_bad(self, message, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, (arguments, result.stdout, result.stderr))
        self.assertIn(message, result.stderr, arguments)
        self.assertEqual(result.stdout, "", arguments)

    def test_numbers_are_whole_and_in_range(self):
        for verb, option in (("sim", "--seeds"), ("sim", "--steps"), ("crash", "--kills")):
            for value in ("abc", "0", "-1", "1.5", "1x", " 1", "", "18446744073709551616"):
                self.expect_bad(f"{option}: want a whole number from 1 to 1000000000000, got '{value}'", verb, option, value)
        self.expect_bad("--first: want a whole number from 0 to", "sim", "--first", "-1")
        self.expect_bad("--seed: want a whole number from 0 to", "crash", "--seed", "x")

    def test_unknown_options_and_verbs_are_refused(self):
        self.expect_bad("--stepps: is no option of sim", "sim", "--stepps", "1")
        self.expect_bad("--kills: is no option of sim", "sim", "--kills", "1")
        self.expect_bad("--seeds: is no option of crash", "crash", "--seeds", "1")
        self.expect_bad("5: is no option of sim", "sim", "5")
        self.expect_bad("--seeds: has no value", "sim", "--seeds")
        self.expect_bad("--dir: is empty", "crash", "--dir", "")
        for arguments in ((), ("sin",)):
            self.expect_bad("usage: fermata-stress sim", *arguments)
        self.assertEqual(run("--help").returncode, 0)

    def test_what_is_asked_for_is_run(self):
        result = run("sim", "--seeds", "2", "--first", "7", "--steps", "300")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.startswith("seeds 2, "), result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
