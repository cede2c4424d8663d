#include "python/csrc/runtime/generator.h"

#include <ATen/Utils.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <mutex>

#include "python/csrc/runtime/device.h"

namespace torch_openreg {
namespace {

constexpr std::size_t kSeedBytes = sizeof(std::uint64_t);
constexpr std::size_t kStateBytes = 2 * kSeedBytes;

}  // namespace

OpenregGenerator::OpenregGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val) {}

void OpenregGenerator::set_current_seed(std::uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

void OpenregGenerator::set_offset(std::uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "offset must be a multiple of 4, got ", offset);
  offset_ = offset;
}

std::uint64_t OpenregGenerator::get_offset() const { return offset_; }

std::uint64_t OpenregGenerator::current_seed() const { return seed_; }

std::uint64_t OpenregGenerator::seed() {
  const std::uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> OpenregGenerator::get_state() const {
  at::Tensor state = at::detail::empty_cpu({static_cast<std::int64_t>(kStateBytes)}, at::kByte,
                                           std::nullopt, std::nullopt, std::nullopt, std::nullopt);
  auto* bytes = static_cast<char*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, kSeedBytes);
  std::memcpy(bytes + kSeedBytes, &offset_, kSeedBytes);
  return state.getIntrusivePtr();
}

void OpenregGenerator::set_state(const c10::TensorImpl& new_state) {
  at::detail::check_rng_state(new_state);
  const auto nbytes = static_cast<std::size_t>(new_state.numel());
  TORCH_CHECK(nbytes == kStateBytes || nbytes == kSeedBytes, "RNG state is wrong size: expected ",
              kStateBytes, " bytes (seed and offset) or ", kSeedBytes, " (seed), got ", nbytes);
  const auto* bytes = static_cast<const char*>(new_state.data());
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::memcpy(&seed, bytes, kSeedBytes);
  if (nbytes == kStateBytes) {
    std::memcpy(&offset, bytes + kSeedBytes, kSeedBytes);
  }
  TORCH_CHECK(offset % 4 == 0, "RNG state: offset must be a multiple of 4, got ", offset);
  seed_ = seed;
  offset_ = offset;
}

std::pair<std::uint64_t, std::uint64_t> OpenregGenerator::philox_inputs(std::uint64_t increment) {
  const std::uint64_t offset = offset_;
  offset_ += (increment + 3) / 4 * 4;
  return {seed_, offset};
}

OpenregGenerator* OpenregGenerator::clone_impl() const {
  auto* copy = new OpenregGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  struct Defaults {
    std::array<at::Generator, kMaxDevices> generators;
    std::array<std::once_flag, kMaxDevices> once;
  };
  static auto* defaults = new Defaults;
  const auto index = static_cast<std::size_t>(resolve_device(device));
  std::call_once(defaults->once[index], [&] {
    at::Generator generator = make_generator(static_cast<c10::DeviceIndex>(index));
    generator.seed();
    defaults->generators[index] = std::move(generator);
  });
  return defaults->generators[index];
}

at::Generator make_generator(c10::DeviceIndex device) {
  return at::make_generator<OpenregGenerator>(resolve_device(device));
}

OpenregGenerator* get_generator(const std::optional<at::Generator>& given,
                                c10::DeviceIndex device) {
  if (!given.has_value() || !given->defined()) {
    return static_cast<OpenregGenerator*>(default_generator(device).unsafeGetGeneratorImpl());
  }
  TORCH_CHECK(given->device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'openreg' device type for generator but found '", given->device().type(),
              "'");
  return static_cast<OpenregGenerator*>(given->unsafeGetGeneratorImpl());
}

}  // namespace torch_openreg
