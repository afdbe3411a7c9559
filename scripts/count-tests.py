#!/usr/bin/env python3
"""Counts the tests in ctest's JUnit files: the slowest, what was skipped and why, then `N passed, N failed`.

usage: count-tests.py FILE.xml ...

A missing file means that a build failed, and counts as one failure. A test counts as passed if it ran; one that ran
but left cases out, for want of a model, say, is named with what it left out. Exit status 0: nothing failed.
"""
import os
import sys
import xml.etree.ElementTree as ElementTree


def reasons(case):
    """What the test itself said after "skip:", each once."""
    lines = (case.findtext("system-out") or "").splitlines()
    said = [line.split("skip: ", 1)[1].strip() for line in lines if "skip: " in line]
    return "; ".join(dict.fromkeys(said))


def slowest(path, n=8):
    """One line: seconds of the whole run's tests together, and the slowest of them."""
    cases = [(float(c.get("time") or 0), c.get("name")) for c in ElementTree.parse(path).getroot().iter("testcase")]
    named = ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(cases, reverse=True)[:n])
    return f"{os.path.dirname(path) or path}: {sum(seconds for seconds, _ in cases):.0f} s of tests; slowest: {named}"


def main():
    passed = failed = 0
    for path in filter(os.path.exists, sys.argv[1:]):
        print(slowest(path))
    for path in sys.argv[1:]:
        if not os.path.exists(path):
            print(f"{path}: there is no such report, so nothing was built or nothing ran")
            failed += 1
            continue
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            status, name = case.get("status"), case.get("name")
            if status == "run":
                passed += 1
                if reasons(case):
                    print(f"{name}, in part: {reasons(case)}")
            elif status == "notrun" and case.find("skipped").get("message", "").startswith("SKIP_"):
                print(f"{name}, skipped: {reasons(case) or 'it does not say why'}")
            else: # also a program that does not exist
                failed += 1
    print(f"\n{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
