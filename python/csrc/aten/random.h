// The CPU generators that stand for the device's in a CPU kernel.
#ifndef PYTHON_CSRC_ATEN_RANDOM_H_
#define PYTHON_CSRC_ATEN_RANDOM_H_

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <optional>

namespace torch_openreg {

// A CPU generator whose numbers are a function of the (seed, offset) that `given`, or the default
// generator of `device`, has now; its offset moves on. At offset 0 the numbers are those of
// torch's CPU generator with the same seed. The object belongs to the calling thread and is
// seeded anew by the next call.
at::Generator cpu_generator(const std::optional<at::Generator>& given, c10::DeviceIndex device);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_RANDOM_H_
