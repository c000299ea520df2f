#!/usr/bin/env bash
# Builds a baseline and the current checkout, and runs a gate that compares them.
#
# Usage: gate.sh EXPERIMENT BASELINE BUILD
#
#   EXPERIMENT  experiment file with [gate]; its commands run programs from ../baseline/ and ../
#   BASELINE    commit, branch or tag of the baseline
#   BUILD       shell command that builds a checkout, run in both
#
# Set BUDGET to override the experiment's budget, for example BUDGET=5min.
# Writes floodmark-result/, floodmark.xml (JUnit) and floodmark.md (Markdown for a comment).
set -euo pipefail

if [ $# -ne 3 ]; then
  echo "usage: gate.sh EXPERIMENT BASELINE BUILD" >&2
  exit 2
fi
experiment=$1 baseline=$2 build=$3
cd "$(git rev-parse --show-toplevel)"

# A shallow clone does not contain the baseline.
if ! git rev-parse --quiet --verify "$baseline^{commit}" >/dev/null; then
  git fetch --quiet --depth 1 origin "$baseline"
  baseline=FETCH_HEAD
fi
git worktree add --quiet --force --detach baseline "$baseline"
trap 'git worktree remove --force baseline' EXIT

echo "building the baseline"
(cd baseline && bash -euo pipefail -c "$build")
echo "building the candidate"
bash -euo pipefail -c "$build"

rm -rf floodmark-result floodmark.md
GITHUB_STEP_SUMMARY=floodmark.md floodmark run "$experiment" ${BUDGET:+--budget "$BUDGET"} \
  --out floodmark-result --junit floodmark.xml --github-summary
