# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: steps with a printed time and a committed budget. Needs bash.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
jobs=${FERMATA_JOBS:-$(nproc)}
started_at=$SECONDS

# budget STEP: the step's seconds, from scripts/budgets.txt.
budget() {
  local seconds
  seconds=$(awk -v step="$1" '$1 == step {print $2}' "$root/scripts/budgets.txt")
  if [[ -z $seconds ]]; then
    echo "no budget for step $1 in scripts/budgets.txt" >&2
    return 2
  fi
  echo "$seconds"
}

# step NAME COMMAND...: runs it, prints its time, and fails when it fails or takes longer than its budget. A step that hangs is
# ended at twice the budget. FERMATA_NO_BUDGET=1 (a slow or shared machine) reports an overrun without failing.
step() {
  local name=$1 limit begin elapsed code=0
  shift
  limit=$(budget "$name")
  echo "--- $name: $*"
  begin=$SECONDS
  # Not in the foreground: timeout then ends the whole process group, compilers and tests included. Interrupting the script has
  # to reach it, too.
  timeout --kill-after=10 $((limit * 2)) "$@" &
  local pid=$!
  trap 'kill -TERM "'"$pid"'" 2>/dev/null; wait "'"$pid"'"; exit 130' INT TERM
  wait "$pid" || code=$?
  trap - INT TERM
  elapsed=$((SECONDS - begin))
  if [[ $code -eq 124 || $code -eq 137 ]]; then
    echo "--- $name: ended after $elapsed s, twice its budget of $limit s" >&2
    return 1
  elif [[ $code -ne 0 ]]; then
    echo "--- $name: failed with $code after $elapsed s" >&2
    return "$code"
  fi
  echo "--- $name: $elapsed s of $limit s"
  over_budget "$name" "$elapsed" "$limit"
}

over_budget() {
  if [[ $2 -gt $3 ]]; then
    echo "--- $1: over its budget: $2 s, $3 s allowed (scripts/budgets.txt)" >&2
    [[ ${FERMATA_NO_BUDGET:-0} == 1 ]] || return 1
  fi
}

# total NAME: the time since the script began, against its budget.
total() {
  local elapsed=$((SECONDS - started_at)) limit
  limit=$(budget "$1")
  echo "--- $1: $elapsed s of $limit s"
  over_budget "$1" "$elapsed" "$limit"
}
