// A model checker for protocols of a few shared words: runs every interleaving of a few threads on
// a machine whose processors have store buffers, as x86 has them (Owens, Sarkar, Sewell, "A better
// x86 memory model: x86-TSO", 2009). For tests.
#ifndef OCCL_CORE_PROTOCOL_MODEL_H_
#define OCCL_CORE_PROTOCOL_MODEL_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace occl::model {

enum class Op : uint8_t {
  kStore,       // memory[a] = b, some time later
  kLoad,        // r[b] = memory[a]
  kFence,       // waits until the own stores have reached the memory
  kAdd,         // memory[a] += b at once, after a fence
  kSwap,        // if memory[a] == 0: memory[a] = b, at once, after a fence
  kAwait,       // waits until memory[a] >= b
  kJump,        // to a
  kJumpIfLess,  // to c if r[a] < b
  kCheckEqual,  // the property: r[a] == b
  kCheckWord,   // the property: memory[a] == b, the own stores counted
  kSleep,       // futex: sleeps if memory[a] == r[b]
  kWake,        // futex: wakes who sleeps on a
  kChance,      // goes on, or jumps to a
};

struct Instruction {
  Op op;
  int a = 0, b = 0, c = 0;
};
using Program = std::vector<Instruction>;

class Machine {
 public:
  // What a store to `word` must not find: memory[guard] != 0 when it reaches the memory.
  struct Forbidden {
    int word, guard;
  };

  Machine(std::vector<Program> programs, int words, std::vector<Forbidden> forbidden = {})
      : programs_(std::move(programs)), words_(words), forbidden_(std::move(forbidden)) {}

  // Runs all interleavings. "" if no property is violated and every one ends; else what happened.
  std::string Explore();
  size_t states() const { return seen_.size(); }

 private:
  static constexpr int kRegisters = 4;
  struct Thread {
    int8_t at = 0;
    bool asleep = false;
    int8_t sleeps_on = -1;
    int8_t registers[kRegisters] = {};
    std::vector<std::pair<int8_t, int8_t>> buffer;  // (word, value), oldest first
    auto operator<=>(const Thread&) const = default;
  };
  struct State {
    std::vector<int8_t> memory;
    std::vector<Thread> threads;
    auto operator<=>(const State&) const = default;
  };

  void Visit(const State& state);
  bool Drain(State* state, size_t thread);
  // False: the thread cannot move now.
  bool Step(State* state, size_t thread, bool second_choice);
  bool Flow(Thread* thread, const Instruction& instruction, bool second_choice);
  bool Futex(State* state, Thread* thread, const Instruction& instruction);
  int Read(const State& state, const Thread& thread, int word) const;
  bool Done(const Thread& thread, size_t index) const {
    return thread.at == static_cast<int>(programs_[index].size());
  }
  void Violation(const std::string& what) {
    if (violation_.empty()) violation_ = what;
  }

  const std::vector<Program> programs_;
  const int words_;
  const std::vector<Forbidden> forbidden_;
  std::set<State> seen_;
  std::vector<State> open_;
  std::string violation_;
};

inline int Machine::Read(const State& state, const Thread& thread, int word) const {
  for (auto store = thread.buffer.rbegin(); store != thread.buffer.rend(); ++store) {
    if (store->first == word) return store->second;
  }
  return state.memory[word];
}

// The oldest store of the thread reaches the memory.
inline bool Machine::Drain(State* state, size_t index) {
  Thread& thread = state->threads[index];
  if (thread.buffer.empty()) return false;
  const auto [word, value] = thread.buffer.front();
  thread.buffer.erase(thread.buffer.begin());
  for (const Forbidden& rule : forbidden_) {
    if (rule.word == word && state->memory[rule.guard] != 0) {
      Violation("thread " + std::to_string(index) + " wrote word " + std::to_string(word) +
                " though word " + std::to_string(rule.guard) + " is set");
    }
  }
  state->memory[word] = value;
  return true;
}

inline bool Machine::Flow(Thread* thread, const Instruction& i, bool second_choice) {
  switch (i.op) {
    case Op::kJump:
      thread->at = static_cast<int8_t>(i.a);
      return !second_choice;
    case Op::kJumpIfLess:
      thread->at = static_cast<int8_t>(thread->registers[i.a] < i.b ? i.c : thread->at + 1);
      return !second_choice;
    default:  // kChance
      thread->at = static_cast<int8_t>(second_choice ? i.a : thread->at + 1);
      return true;
  }
}

inline bool Machine::Futex(State* state, Thread* thread, const Instruction& i) {
  if (!thread->buffer.empty()) return false;  // a system call is a fence
  ++thread->at;
  if (i.op == Op::kSleep) {
    thread->asleep = state->memory[i.a] == thread->registers[i.b];
    thread->sleeps_on = static_cast<int8_t>(thread->asleep ? i.a : -1);
    return true;
  }
  for (Thread& other : state->threads) {
    if (other.asleep && other.sleeps_on == i.a) {
      other.asleep = false;
      other.sleeps_on = -1;
    }
  }
  return true;
}

inline bool Machine::Step(State* state, size_t index, bool second_choice) {
  Thread& thread = state->threads[index];
  if (thread.asleep || Done(thread, index)) return false;
  const Instruction& i = programs_[index][thread.at];
  if (i.op == Op::kJump || i.op == Op::kJumpIfLess || i.op == Op::kChance) {
    return Flow(&thread, i, second_choice);
  }
  if (second_choice) return false;
  if (i.op == Op::kSleep || i.op == Op::kWake) return Futex(state, &thread, i);
  const bool drained = thread.buffer.empty();
  switch (i.op) {
    case Op::kStore:
      thread.buffer.emplace_back(i.a, i.b);
      break;
    case Op::kLoad:
      thread.registers[i.b] = static_cast<int8_t>(Read(*state, thread, i.a));
      break;
    case Op::kFence:
      if (!drained) return false;
      break;
    case Op::kAdd:
      if (!drained) return false;
      state->memory[i.a] = static_cast<int8_t>(state->memory[i.a] + i.b);
      break;
    case Op::kSwap:
      if (!drained) return false;
      if (state->memory[i.a] == 0) state->memory[i.a] = static_cast<int8_t>(i.b);
      break;
    case Op::kAwait:
      if (Read(*state, thread, i.a) < i.b) return false;
      break;
    case Op::kCheckEqual:
      if (thread.registers[i.a] != i.b) {
        Violation("thread " + std::to_string(index) + " found " +
                  std::to_string(thread.registers[i.a]) + " where " + std::to_string(i.b) +
                  " must be (instruction " + std::to_string(thread.at) + ")");
      }
      break;
    case Op::kCheckWord:
      if (Read(*state, thread, i.a) != i.b) {
        Violation("thread " + std::to_string(index) + ": word " + std::to_string(i.a) + " is not " +
                  std::to_string(i.b));
      }
      break;
    default:
      break;
  }
  ++thread.at;
  return true;
}

inline void Machine::Visit(const State& state) {
  bool moved = false, all_done = true;
  for (size_t t = 0; t < programs_.size(); ++t) {
    all_done = all_done && Done(state.threads[t], t);
    for (int way = 0; way < 3; ++way) {
      State next = state;
      if (!(way == 2 ? Drain(&next, t) : Step(&next, t, way == 1))) continue;
      moved = true;
      if (seen_.insert(next).second) open_.push_back(std::move(next));
    }
  }
  if (moved || all_done) return;
  std::string where;
  for (const Thread& thread : state.threads) where += " " + std::to_string(thread.at);
  Violation("nobody can move; the threads are at" + where);
}

inline std::string Machine::Explore() {
  State first;
  first.memory.assign(words_, 0);
  first.threads.resize(programs_.size());
  seen_ = {first};
  open_ = {first};
  while (!open_.empty() && violation_.empty()) {
    const State state = std::move(open_.back());
    open_.pop_back();
    Visit(state);
  }
  return violation_;
}

}  // namespace occl::model

#endif  // OCCL_CORE_PROTOCOL_MODEL_H_
