// main() of fuzz targets where there is no libFuzzer: runs LLVMFuzzerTestOneInput on every file of
// the corpus, then on mutations of it.
//
//   target [-runs=N] [-seconds=S] [-seed=N] [-max_len=N] file-or-folder...
//
// Everything follows from the seed. Built with --config=fuzz, inputs that reach new code are kept
// and mutated further. An input that ends the process is written to a file, which replays it.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

using Bytes = std::vector<uint8_t>;

// ---- coverage: calls of __sanitizer_cov_trace_pc come from code built with
// -fsanitize-coverage=trace-pc (gcc and clang).

constexpr size_t kMapSize = 1 << 16;
uint8_t seen_map[kMapSize];
size_t new_places = 0;

// ---- the input in hand, for the report of a crash

const uint8_t* current_data = nullptr;
size_t current_size = 0;

void WriteCrash() {
  static bool written = false;
  if (written || current_data == nullptr) return;
  written = true;
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  char path[512];
  std::snprintf(path, sizeof(path), "%s/crash-%d", folder != nullptr ? folder : ".",
                static_cast<int>(getpid()));
  const int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const bool whole = write(fd, current_data, current_size) == static_cast<ssize_t>(current_size);
  close(fd);
  std::fprintf(stderr, "fuzz: the input (%zu bytes%s) is in %s\n", current_size,
               whole ? "" : ", cut", path);
}

void OnSignal(int signal_number) {
  WriteCrash();
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void RunOne(const Bytes& input) {
  current_data = input.data();
  current_size = input.size();
  // A copy of the exact size, so that a read beyond it is one beyond an allocation.
  const Bytes copy(input);
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  current_data = nullptr;
}

// ---- mutation

class Mutator {
 public:
  Mutator(uint64_t seed, size_t max_size) : random_(seed), max_size_(max_size) {}

  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  Bytes Mutate(const std::vector<Bytes>& pool) {
    Bytes bytes = pool[Below(pool.size())];
    for (size_t rounds = 1 + Below(4); rounds > 0; --rounds) Once(&bytes, pool);
    if (bytes.size() > max_size_) bytes.resize(max_size_);
    return bytes;
  }

 private:
  void Once(Bytes* bytes, const std::vector<Bytes>& pool) {
    const size_t at = Below(bytes->size());
    switch (Below(7)) {
      case 0:
        if (!bytes->empty()) (*bytes)[at] ^= static_cast<uint8_t>(1u << Below(8));
        break;
      case 1:
        if (!bytes->empty()) (*bytes)[at] = static_cast<uint8_t>(random_());
        break;
      case 2:
        Interesting(bytes, at);
        break;
      case 3:
        bytes->insert(bytes->begin() + static_cast<ptrdiff_t>(at), 1 + Below(16),
                      static_cast<uint8_t>(random_()));
        break;
      case 4: {
        const size_t end = std::min(bytes->size(), at + 1 + Below(16));
        bytes->erase(bytes->begin() + static_cast<ptrdiff_t>(at),
                     bytes->begin() + static_cast<ptrdiff_t>(end));
        break;
      }
      case 5: {
        const Bytes& other = pool[Below(pool.size())];
        const size_t from = Below(other.size());
        bytes->resize(at);
        bytes->insert(bytes->end(), other.begin() + static_cast<ptrdiff_t>(from), other.end());
        break;
      }
      default:
        bytes->resize(at);
    }
  }

  // Numbers at the edges of ranges, in 1 to 8 bytes.
  void Interesting(Bytes* bytes, size_t at) {
    static constexpr uint64_t kNumbers[] = {0,       1,          2,         0x7f,       0x80,
                                            0xff,    0x7fff,     0xffff,    0x7fffffff, 0x80000000,
                                            1 << 16, UINT32_MAX, INT64_MAX, UINT64_MAX, 64 << 10};
    uint64_t number = kNumbers[Below(std::size(kNumbers))];
    if (Below(4) == 0) number = uint64_t{0} - number;
    const size_t width = size_t{1} << Below(4);
    if (at + width <= bytes->size()) std::memcpy(bytes->data() + at, &number, width);
  }

  std::mt19937_64 random_;
  const size_t max_size_;
};

void ReadCorpus(const std::string& path, std::vector<Bytes>* corpus) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  } else {
    files.emplace_back(path);
  }
  std::sort(files.begin(), files.end());  // the order must not depend on the file system
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) {
      std::fprintf(stderr, "fuzz: cannot read %s\n", file.c_str());
      std::exit(2);
    }
    corpus->emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
}

struct Options {
  uint64_t runs = 0, seconds = 0, seed = 1, max_size = 4096;
};

bool ReadOption(const char* argument, const char* name, uint64_t* value) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0) return false;
  *value = std::strtoull(argument + length, nullptr, 10);
  return true;
}

}  // namespace

extern "C" __attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  uint8_t& seen = seen_map[(place ^ (place >> 16)) % kMapSize];
  if (seen == 0) {
    seen = 1;
    ++new_places;
  }
}

int main(int argc, char** argv) {
  Options options;
  std::vector<Bytes> pool;
  for (int i = 1; i < argc; ++i) {
    if (ReadOption(argv[i], "-runs=", &options.runs) ||
        ReadOption(argv[i], "-seconds=", &options.seconds) ||
        ReadOption(argv[i], "-seed=", &options.seed) ||
        ReadOption(argv[i], "-max_len=", &options.max_size)) {
      continue;
    }
    ReadCorpus(argv[i], &pool);
  }
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(number, OnSignal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(WriteCrash);
  for (const Bytes& input : pool) RunOne(input);
  std::fprintf(stderr, "fuzz: %zu inputs of the corpus\n", pool.size());
  if (pool.empty()) pool.emplace_back(64, 0);
  Mutator mutator(options.seed, options.max_size);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  uint64_t done = 0;
  while (done < options.runs || std::chrono::steady_clock::now() < end) {
    const size_t before = new_places;
    const Bytes input = mutator.Mutate(pool);
    RunOne(input);
    if (new_places != before) pool.push_back(input);
    ++done;
  }
  std::fprintf(stderr,
               "fuzz: %llu mutations, seed %llu, %zu places of code reached, %zu inputs kept\n",
               static_cast<unsigned long long>(done), static_cast<unsigned long long>(options.seed),
               new_places, pool.size());
  return 0;
}
