// The device's random state: a Philox seed and offset, as CUDA's.
#ifndef PYTHON_CSRC_RUNTIME_GENERATOR_H_
#define PYTHON_CSRC_RUNTIME_GENERATOR_H_

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace torch_openreg {

// State: 16 bytes, the seed and then the offset, both little-endian 64 bits, as CUDA's without
// graphs (DTensor reads and writes the offset in it). The numbers that an operator draws are a
// function of (seed, offset) only, so they do not depend on how many threads compute them.
// Methods are to be called under mutex_, as all of torch's generators.
class OpenregGenerator final : public c10::GeneratorImpl {
 public:
  explicit OpenregGenerator(c10::DeviceIndex device);

  void set_current_seed(std::uint64_t seed) override;  // the offset becomes 0
  // Throws unless the offset is a multiple of 4: one Philox call makes four 32-bit numbers.
  void set_offset(std::uint64_t offset) override;
  std::uint64_t get_offset() const override;
  std::uint64_t current_seed() const override;
  std::uint64_t seed() override;  // takes a non-deterministic seed and returns it
  void set_state(const c10::TensorImpl& new_state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // For an operator that draws: returns (seed, offset) as they are and moves the offset by
  // `increment` (32-bit numbers drawn by one lane), rounded up to a multiple of 4. Call it under
  // mutex_, draw outside of the lock.
  std::pair<std::uint64_t, std::uint64_t> philox_inputs(std::uint64_t increment);

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

 private:
  OpenregGenerator* clone_impl() const override;

  std::uint64_t seed_;
  std::uint64_t offset_ = 0;
};

// The default generator of `device` (-1: the current one); made at first use, lives for ever.
// Does not bring the device to life: seeding before the first use is fine, as with CUDA.
const at::Generator& default_generator(c10::DeviceIndex device = -1);
// A new one with torch's default seed.
at::Generator make_generator(c10::DeviceIndex device);

// The generator an operator was given, or its device's default one. Throws for a generator of
// another kind of device.
OpenregGenerator* get_generator(const std::optional<at::Generator>& given, c10::DeviceIndex device);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_RUNTIME_GENERATOR_H_
