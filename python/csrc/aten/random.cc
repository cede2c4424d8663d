#include "python/csrc/aten/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "python/csrc/runtime/generator.h"

namespace torch_openreg {
namespace {

// What one operator moves the offset by: one Philox call, since an operator's numbers follow from
// its first offset alone.
constexpr std::uint64_t kOffsetPerOperator = 4;

// Sebastiano Vigna's splitmix64 (public domain, https://prng.di.unimi.it/splitmix64.c), the usual
// way to fill the state of a larger generator from 64 bits.
std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// torch's mt19937 takes 32 bits of a seed only; all of (seed, offset) goes in here.
at::mt19937 engine_for(std::uint64_t seed, std::uint64_t offset) {
  std::uint64_t state = seed;
  state = splitmix64(state) ^ offset;
  at::mt19937_data_pod data;
  data.seed_ = seed;
  data.left_ = 1;
  data.seeded_ = true;
  data.next_ = 0;
  for (size_t i = 0; i < data.state_.size(); i += 2) {
    const std::uint64_t word = splitmix64(state);
    data.state_[i] = static_cast<std::uint32_t>(word);
    data.state_[i + 1] = static_cast<std::uint32_t>(word >> 32);
  }
  at::mt19937 engine;
  engine.set_data(data);
  return engine;
}

}  // namespace

at::Generator cpu_generator(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  OpenregGenerator* generator = get_generator(given, device);
  std::pair<std::uint64_t, std::uint64_t> philox;
  {
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    philox = generator->philox_inputs(kOffsetPerOperator);
  }
  static thread_local at::Generator cpu = at::detail::createCPUGenerator();
  auto* impl = cpu.get<at::CPUGeneratorImpl>();
  impl->set_current_seed(philox.first);
  if (philox.second != 0) {
    impl->set_engine(engine_for(philox.first, philox.second));
  }
  return cpu;
}

}  // namespace torch_openreg
