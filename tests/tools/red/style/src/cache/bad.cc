// SPDX-License-Identifier: Apache-2.0
// One line for each ban. A comment that names std::mutex is none.
#include <mutex>

using namespace std;

std::mutex a;
absl::string_view b;
const char* c = getenv("HOME");
void d() { std::this_thread::sleep_for(e); }
std::thread f;
auto g = std::chrono::steady_clock::now();
std::mt19937 h;
void i() { throw 1; }
const char* k = "/home/somebody/trace.jsonl";
// TODO: later
