#include "python/csrc/sanitizer/places.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <Python.h>
#include <torch/csrc/autograd/node.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>

#include "python/csrc/runtime/interpreter.h"

namespace torch_openreg::sanitizer {
namespace {

// A frame's code and the offset of its instruction, or a node of a backward pass.
struct Entry {
  PyCodeObject* code = nullptr;  // owned for ever: frames outlive no code that is known here
  int instruction = 0;
  Place backward = 0;
  Place forward = 0;
  std::string node;
};

// Where the operators of the forward pass were called, by autograd's sequence number, for the last
// ones of the process.
struct Forward {
  std::uint64_t thread = 0;
  std::uint64_t sequence = 0;
  Place place = 0;
};
constexpr std::size_t kForwards = std::size_t{1} << 15;

struct Places {
  std::mutex mutex;  // taken with the interpreter lock held or without, never the other way round
  std::vector<Entry> entries{Entry{}};
  std::map<std::pair<PyCodeObject*, int>, Place> by_code;
  std::map<std::pair<std::pair<Place, Place>, std::string>, Place> by_node;
  std::vector<Forward> forwards{kForwards};

  // Guarded by the interpreter lock.
  std::vector<std::pair<std::string, bool>> prefixes;
  std::unordered_map<PyCodeObject*, bool> skipped;

  std::atomic<Place> backward{0};
};

Places& places() {
  static auto* const instance = new Places;  // leaked: used at exit
  return *instance;
}

std::string file_of(PyCodeObject* code) {
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) {
    PyErr_Clear();
    return "?";
  }
  return file;
}

bool is_skipped(PyCodeObject* code) {
  Places& all = places();
  const auto known = all.skipped.find(code);
  if (known != all.skipped.end()) {
    return known->second;
  }
  const std::string file = file_of(code);
  bool skipped = file.rfind("<frozen", 0) == 0;
  std::size_t longest = 0;
  for (const auto& [prefix, skip] : all.prefixes) {
    if (prefix.size() > longest && file.rfind(prefix, 0) == 0) {
      longest = prefix.size();
      skipped = skip;
    }
  }
  Py_INCREF(code);
  all.skipped.emplace(code, skipped);
  return skipped;
}

Place intern(PyCodeObject* code, int instruction) {
  Places& all = places();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Place& place = all.by_code[{code, instruction}];
  if (place == 0) {
    place = all.entries.size();
    Entry entry;
    entry.code = code;  // is_skipped holds it
    entry.instruction = instruction;
    all.entries.push_back(std::move(entry));
  }
  return place;
}

// With the interpreter lock.
Place python_place(PyThreadState* thread) {
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  Place place = 0;
  while (frame != nullptr && place == 0) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (!is_skipped(code)) {
      place = intern(code, PyFrame_GetLasti(frame));
    }
    Py_DECREF(code);
    PyFrameObject* const outer = place == 0 ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = outer;
  }
  return place;
}

// This thread's own frames, 0 if it has none outside of torch.
Place own_place() {
  if (interpreter_is_ending()) {
    return 0;
  }
  PyThreadState* const thread = PyGILState_GetThisThreadState();
  if (thread == nullptr) {
    return 0;
  }
  const PyGILState_STATE state = PyGILState_Ensure();
  const Place place = python_place(thread);
  PyGILState_Release(state);
  return place;
}

Forward& forward_slot(std::uint64_t sequence) { return places().forwards[sequence % kForwards]; }

// `node` in a backward pass that was started, or is hooked into, at `call`.
Place node_place(const torch::autograd::Node& node, Place call) {
  Places& all = places();
  const std::string name = node.name();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const Forward& slot = forward_slot(node.sequence_nr());
  const bool known = slot.thread == node.thread_id() && slot.sequence == node.sequence_nr();
  const Place forward = known ? slot.place : 0;
  Place& place = all.by_node[{{call, forward}, name}];
  if (place == 0) {
    place = all.entries.size();
    Entry entry;
    entry.backward = call;
    entry.forward = forward;
    entry.node = name;
    all.entries.push_back(std::move(entry));
  }
  return place;
}

// The operator that is called now was given the last sequence number, if it was given one.
void note_forward(Place place) {
  const std::uint64_t next = at::sequence_number::peek();
  if (next == 0) {
    return;
  }
  const std::uint64_t thread = at::RecordFunction::currentThreadId();
  const std::lock_guard<std::mutex> lock(places().mutex);
  Forward& slot = forward_slot(next - 1);
  if (slot.sequence != next - 1 || slot.thread != thread) {
    slot = {thread, next - 1, place};
  }
}

}  // namespace

Place current_place() {
  const Place own = own_place();
  const Place call = own != 0 ? own : places().backward.load(std::memory_order_relaxed);
  if (const auto node = torch::autograd::get_current_node()) {
    return node_place(*node, call);
  }
  if (own != 0) {
    note_forward(own);
  }
  return call;
}

void note_backward() {
  if (const Place place = own_place(); place != 0) {
    places().backward.store(place, std::memory_order_relaxed);
  }
}

PlaceText describe(Place place) {
  Entry entry;
  {
    const std::lock_guard<std::mutex> lock(places().mutex);
    entry = places().entries.at(place);
  }
  if (entry.code == nullptr) {
    if (entry.node.empty()) {
      return {};
    }
    PlaceText text = describe(entry.backward);
    const PlaceText forward = describe(entry.forward);
    text.node = entry.node;
    text.forward_file = forward.file;
    text.forward_line = forward.line;
    return text;
  }
  PlaceText text;
  text.file = file_of(entry.code);
  text.line = PyCode_Addr2Line(entry.code, entry.instruction);
  const char* name = PyUnicode_AsUTF8(entry.code->co_name);
  text.function = name == nullptr ? "?" : name;
  if (name == nullptr) {
    PyErr_Clear();
  }
  return text;
}

void set_skipped_paths(std::vector<std::pair<std::string, bool>> prefixes) {
  places().prefixes = std::move(prefixes);
  places().skipped.clear();
}

}  // namespace torch_openreg::sanitizer
