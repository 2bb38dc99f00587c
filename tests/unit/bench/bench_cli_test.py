#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of fermata-bench as a user meets it: exit codes, messages, files. Usage: PROGRAM SAMPLES_DIR."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SAMPLES = sys.argv[1], sys.argv[2]


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120)


class Usage(unittest.TestCase):
    def expect_bad(self, message, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, (arguments, result.stderr))
        self.assertIn(message, result.stderr, arguments)
        self.assertEqual(result.stdout, "", arguments)

    def test_help_is_no_error(self):
        self.assertEqual(run("--help").returncode, 0)
        self.assertIn("--device-blocks", run("replay", "--help").stdout)

    def test_bad_options_are_named(self):
        self.expect_bad("subcommand", )
        self.expect_bad("--nope", "replay", "--nope")
        self.expect_bad("--block-split 7", "replay", "--block-split", "7")
        self.expect_bad("--clock soon", "replay", "--clock", "soon")
        self.expect_bad("--keys words", "replay", "--keys", "words")
        self.expect_bad("--by luck", "replay", "--by", "luck")
        self.expect_bad("--by handles", "replay", "--by", "handles", "--host-blocks", "8")
        self.expect_bad("--format", "replay", "--format", "odd", "--trace", SAMPLES)
        self.expect_bad("--dir", "replay", "--clock", "real", "--ssd-blocks", "9")
        self.expect_bad("--sabotage 3", "replay", "--sabotage", "3")
        self.expect_bad("--hours: want more than 0", "generate", "--hours", "0", "--out", os.devnull)

    def test_numbers_out_of_range_are_refused_with_the_range(self):
        ranges = {
            "--device-blocks": "1 to 2147483647", "--host-blocks": "0 to 2147483647", "--ssd-blocks": "0 to 2147483647",
            "--block-bytes": "64 to 1073741824", "--block-split": "1 to 512", "--threads": "1 to 256",
            "--sessions": "1 to 20000", "--max-steps": "1 to 100000", "--max-context": "20000 to 2000000",
            "--limit": "0 to 67108864", "--seed": "0 to 18446744073709551615", "--sabotage": "0 to 18446744073709551615"}
        for option, limits in ranges.items():
            odd = ("many", "1.5", "0x10", "", "18446744073709551616") if option in ("--device-blocks", "--threads") else ()
            for value in ("-5", "1" * 400, *odd):
                message = f"{option}: want a whole number from {limits}, got '{value[:40]}'"
                self.expect_bad(message, "replay", option, value)
        for option in ("--device-blocks", "--block-bytes", "--block-split", "--threads", "--sessions", "--max-steps"):
            self.expect_bad(f"{option}: want a whole number", "replay", option, "0")
        self.expect_bad("--sessions: want a whole number from 1 to 20000", "replay", "--sessions", "18446744073709551615")
        for option, limits in (("--hours", "0 to 10000"), ("--context-scale", "0.01 to 10"), ("--spread-hours", "0 to 100000")):
            for value in ("soon", "-1", "nan", "inf", "1e400"):
                self.expect_bad(f"{option}: want a number from {limits}, got '{value}'", "replay", option, value)
        self.assertIn("1 to 2147483647", run("replay", "--help").stdout)

    def test_unwritable_outputs_are_found_before_the_run(self):
        for option in ("--json", "--html", "--per-request"):
            self.expect_bad(option + " /no/such/file", "replay", option, "/no/such/file")

    def test_bad_traces_name_file_line_and_field(self):
        for name, where in (("bad_keep.kvt1.jsonl", ":2: field 'keep'"), ("bad_ids.mooncake.jsonl", ":1: field 'hash_ids'"),
                            ("bad_round.tracelab.csv", ":3: field 'round_idx'"), ("absent", "cannot open")):
            path = os.path.join(SAMPLES, name)
            for verb in (["replay"], ["convert", "--out", os.devnull]):
                self.expect_bad(path, *verb, "--trace", path)
                self.expect_bad(where, *verb, "--trace", path)

    def test_unknown_policies_are_refused_with_the_known_ones(self):
        for name in ("no-such-policy", ""):
            self.expect_bad(f"--policy '{name}': want lru or lru-superseded", "replay", "--policy", name)
        self.assertIn("lru or lru-superseded", run("replay", "--help").stdout)


class Runs(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.dir = self.temp.name

    def tearDown(self):
        self.temp.cleanup()

    def replay(self, *arguments, code=0):
        report = os.path.join(self.dir, "report.json")
        result = run("replay", "--json", report, *arguments)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout)
        self.assertNotIn("\x1b", result.stderr)  # no progress line in a pipe
        with open(report, encoding="utf-8") as file:
            return json.load(file)

    small = ("--sessions", "12", "--hours", "1")

    def test_virtual_replay_adds_up(self):
        rows_path = os.path.join(self.dir, "rows.csv")
        page = os.path.join(self.dir, "page.html")
        report = self.replay(*self.small, "--per-request", rows_path, "--html", page)
        self.assertEqual(report["orphans"], 0)
        self.assertEqual(report["oracle_checks"], 0)
        self.assertGreater(report["tokens_hit_device"], 0)
        with open(rows_path, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), report["requests"])
        for key, column in (("tokens_prompt", "prompt_tokens"), ("tokens_hit_device", "hit_device"), ("tokens_hit_host", "hit_host"),
                            ("tokens_recomputed", "recomputed")):
            self.assertEqual(sum(int(row[column]) for row in rows), report[key], key)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        data = json.loads(text.split('id="data">', 1)[1].split("</script>", 1)[0])
        self.assertEqual(data["requests"], report["requests"])
        self.assertEqual(sum(bucket["prompt"] for bucket in data["timeline"]), report["tokens_prompt"])

    def test_token_keys_and_splits_find_the_same_prefixes(self):
        # Nothing is ever evicted here, so naming and block size cannot change what is found.
        ample = (*self.small, "--device-blocks", "400000", "--policy", "lru")
        want = self.replay(*ample)
        for more in (["--keys", "tokens"], ["--block-split", "4"], ["--keys", "tokens", "--block-split", "32"]):
            got = self.replay(*ample, *more)
            self.assertEqual(got["tokens_hit_device"], want["tokens_hit_device"], more)

    def test_by_handles_finds_what_by_names_does(self):
        # Nothing is evicted; what a session's next prompt shares with its last one is found either way, and a handle
        # does not find what another session's prompt has by chance.
        ample = (*self.small, "--device-blocks", "400000")
        want = self.replay(*ample)
        got = self.replay(*ample, "--by", "handles")
        self.assertGreater(got["resumed"], got["requests"] // 2)
        self.assertLessEqual(got["tokens_hit_device"], want["tokens_hit_device"])
        self.assertGreater(got["tokens_hit_device"], 0.97 * want["tokens_hit_device"])
        # Every byte of what was resumed is checked; under pressure, too.
        real = self.replay(*self.small, "--by", "handles", "--clock", "real", "--device-blocks", "600", "--block-bytes", "8192")
        self.assertEqual(real["oracle_failures"], 0)
        self.assertGreater(real["oracle_checks"], 0)
        self.assertGreater(real["evictions"], 0)

    def real(self, *more, code=0):
        return self.replay(*self.small, "--clock", "real", "--device-blocks", "400", "--host-blocks", "300", "--ssd-blocks", "3000",
                           "--dir", os.path.join(self.dir, "store"), "--block-bytes", "8192", *more, code=code)

    def test_real_replay_checks_every_hit_and_survives_a_restart(self):
        first = self.real()
        self.assertEqual(first["oracle_failures"], 0)
        hits = first["tokens_hit_device"] + first["tokens_hit_host"] + first["tokens_hit_ssd"]
        self.assertEqual(first["oracle_checks"] * 512, hits - first["tokens_hit_cut"])
        second = self.real()
        self.assertEqual(second["oracle_failures"], 0)
        self.assertGreater(second["tokens_hit_ssd"], first["tokens_hit_ssd"])

    def test_sabotage_is_found(self):
        self.assertGreater(self.real("--sabotage", "50", code=1)["oracle_failures"], 0)

    def test_clocks_agree(self):
        # Not to the block: on the real clock a demotion may still be under way when the next victim is chosen.
        real = self.real()
        virtual = self.replay(*self.small, "--device-blocks", "400", "--host-blocks", "300", "--ssd-blocks", "3000")
        self.assertEqual(real["requests_cut"], virtual["requests_cut"])
        self.assertAlmostEqual(real["hit_ratio"], virtual["hit_ratio"], delta=0.01)

    def test_generated_trace_replays_like_the_embedded_one(self):
        path = os.path.join(self.dir, "trace.jsonl.gz")
        self.assertEqual(run("generate", *self.small, "--out", path).returncode, 0)
        embedded, read = self.replay(*self.small), self.replay("--trace", path)
        self.assertEqual(embedded["tokens_hit_device"], read["tokens_hit_device"])

    def test_every_format_replays(self):
        for name in ("tiny.kvt1.jsonl", "tiny.mooncake.jsonl", "tiny.tester.json", "tiny.tracelab.csv", "tiny.tracelab2.csv"):
            report = self.replay("--trace-dir", SAMPLES, "--trace", name)
            self.assertGreater(report["tokens_hit_device"], 0, name)
            self.assertEqual(len(report["trace"]["sha256"]), 64)


class Index(unittest.TestCase):
    ROWS = ["evict64_p99_us_1m", "evict64_single_p99_us_1m", "evict64_visits_1k", "evict64_visits_1m", "resume_131k_us",
            "match_131k_us", "match_131k_cold_us", "sha256_131k_us", "wrong_hits_8bit", "wrong_hits_16bit", "bytes_per_block_1m",
            "bytes_per_block_10m", "alloc_ns_batched", "alloc_ns_single", "free_ns_batched", "fork_us", "fork_copies",
            "lookup_scaling_2t", "lookup_under_writes", "abi_call_ns"]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.json = os.path.join(self.folder.name, "index.json")

    def index(self, *more):
        result = run("index", "--quick", "--tiny", "--json", self.json, *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.json, encoding="utf-8") as file:
            return json.load(file), result.stdout

    def test_every_row_is_there_in_order_and_a_number(self):
        report, text = self.index()
        self.assertEqual(list(report)[:len(self.ROWS)], self.ROWS)
        for key, value in report.items():
            if key in ("size", "sizes", "failures") or "_visits_" in key and not key.startswith("ref_") and value is None:
                continue  # visits: a counter that the library may not have
            self.assertIsInstance(value, (int, float), key)
        for key in self.ROWS:
            self.assertIn(key, text)
        for key in ("wrong_hits_8bit", "wrong_hits_16bit", "missed_hits_8bit", "missed_hits_16bit", "fork_copies"):
            self.assertEqual(report[key], 0, key)
        for key in ("ref_evict64_p99_us_1m", "ref_xxh3_131k_us", "ref_memcmp_131k_us", "ref_bytes_per_block_1m", "ref_fork_us",
                    "ref_alloc_ns_single", "match_131k_run8_us", "bytes_per_block_run1_1m", "lookup_leased_under_writes"):
            self.assertGreater(report[key], 0, key)
        self.assertEqual((report["size"], report["failures"]), ("tiny", []))

    def test_only_measures_what_is_asked_for(self):
        report, text = self.index("--only", "abi_call_ns,alloc_ns_single")
        self.assertEqual(list(report)[:2], ["alloc_ns_single", "abi_call_ns"])
        self.assertNotIn("fork_us", report)
        self.assertNotIn("fork_us", text)

    def test_bad_options_are_named(self):
        for message, more in (("--only nope", ["--only", "abi_call_ns,nope"]), ("--json /no/such/file", ["--json", "/no/such/file"])):
            result = run("index", "--tiny", *more)
            self.assertEqual((result.returncode, result.stdout), (2, ""), message)
            self.assertIn(message, result.stderr)
        self.assertIn("evict64_visits_1m", run("index", "--help").stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
