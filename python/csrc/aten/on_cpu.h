// Kernels of openreg made from the CPU's, unboxed: for operators that are called often. What
// cpu_fallback does with any operator, at a fraction of the cost (the types are known).
#ifndef PYTHON_CSRC_ATEN_ON_CPU_H_
#define PYTHON_CSRC_ATEN_ON_CPU_H_

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/csrc/aten/cpu_call.h"
#include "python/csrc/aten/deferral.h"

namespace torch_openreg {

// An argument of type T (as in the operator's C++ schema), and what the CPU's kernel gets for it.
template <typename T>
class CpuArgument {
 public:
  CpuArgument(CpuCall& /*call*/, T value) : value_(std::forward<T>(value)) {}
  T get() { return std::forward<T>(value_); }
  static void see(DeviceFinder& /*finder*/, const std::remove_reference_t<T>& /*value*/) {}

 private:
  T value_;
};

template <>
class CpuArgument<const at::Tensor&> {
 public:
  CpuArgument(CpuCall& call, const at::Tensor& value)
      : call_(call), index_(call.add(value, /*written=*/false)) {}
  const at::Tensor& get() { return call_.at(index_); }
  static void see(DeviceFinder& finder, const at::Tensor& value) { finder.see(value); }

 private:
  CpuCall& call_;
  size_t index_;
};

template <>
class CpuArgument<at::Tensor&> {
 public:
  CpuArgument(CpuCall& call, at::Tensor& value)
      : call_(call), index_(call.add(value, /*written=*/true)) {}
  at::Tensor& get() { return const_cast<at::Tensor&>(call_.at(index_)); }
  static void see(DeviceFinder& finder, const at::Tensor& value) { finder.see_written(value); }

 private:
  CpuCall& call_;
  size_t index_;
};

template <>
class CpuArgument<const std::optional<at::Tensor>&> {
 public:
  CpuArgument(CpuCall& call, const std::optional<at::Tensor>& value) {
    if (value.has_value()) {
      alias_ = call.at(call.add(*value, /*written=*/false));
    }
  }
  const std::optional<at::Tensor>& get() { return alias_; }
  static void see(DeviceFinder& finder, const std::optional<at::Tensor>& value) {
    if (value.has_value()) {
      finder.see(*value);
    }
  }

 private:
  std::optional<at::Tensor> alias_;
};

// A list may be written to (the schema's C++ type does not tell), but not resized: no kernel that
// is registered this way does that.
template <>
class CpuArgument<at::TensorList> {
 public:
  CpuArgument(CpuCall& call, at::TensorList values) : aliases_(call, values, /*written=*/true) {}
  at::TensorList get() { return aliases_.get(); }
  static void see(DeviceFinder& finder, at::TensorList values) {
    for (const at::Tensor& value : values) {
      finder.see(value);
    }
  }

 private:
  AliasList aliases_;
};

template <>
class CpuArgument<const at::ITensorListRef&> {
 public:
  CpuArgument(CpuCall& call, const at::ITensorListRef& values)
      : aliases_(call, values, /*written=*/false) {}
  at::ITensorListRef get() { return aliases_.get(); }
  static void see(DeviceFinder& finder, const at::ITensorListRef& values) {
    for (const at::Tensor& value : values) {
      finder.see(value);
    }
  }

 private:
  AliasList aliases_;
};

template <>
class CpuArgument<std::optional<at::Device>> {
 public:
  CpuArgument(CpuCall& /*call*/, std::optional<at::Device> value) : value_(value) {
    if (value_.has_value() && value_->is_privateuseone()) {
      value_ = at::Device(at::DeviceType::CPU);
    }
  }
  std::optional<at::Device> get() { return value_; }
  static void see(DeviceFinder& finder, std::optional<at::Device> value) { finder.see(value); }

 private:
  std::optional<at::Device> value_;
};

template <>
class CpuArgument<std::optional<at::Generator>> {
 public:
  CpuArgument(CpuCall& call, const std::optional<at::Generator>& value)
      : value_(call.generator(value)) {}
  std::optional<at::Generator> get() { return std::move(value_); }
  static void see(DeviceFinder& finder, const std::optional<at::Generator>& value) {
    finder.see(value);
  }

 private:
  std::optional<at::Generator> value_;
};

namespace detail {

// Results on their way back.
inline at::Tensor to_device(CpuCall& call, at::Tensor&& result) {
  return call.wrap(std::move(result));
}
inline at::Tensor& to_device(CpuCall& call, at::Tensor& result) {
  return const_cast<at::Tensor&>(call.original(result));
}
inline std::vector<at::Tensor> to_device(CpuCall& call, std::vector<at::Tensor>&& results) {
  for (at::Tensor& result : results) {
    result = call.wrap(std::move(result));
  }
  return std::move(results);
}
template <typename... T>
std::tuple<T...> to_device(CpuCall& call, std::tuple<T...>&& results) {
  return std::apply(
      [&call](auto&&... result) {
        return std::tuple<T...>(to_device(call, std::forward<T>(result))...);
      },
      std::move(results));
}
template <typename T>
  requires(std::is_arithmetic_v<T> || std::is_same_v<T, at::Scalar> ||
           std::is_same_v<T, at::ScalarType> || std::is_same_v<T, c10::SymInt>)
T to_device(CpuCall& /*call*/, T&& result) {
  return std::move(result);
}

// The last argument that is written to: `self` in place, `out` of out= (its C++ type says so).
inline at::Tensor* written_argument() { return nullptr; }
template <typename First, typename... Rest>
at::Tensor* written_argument(First&& first, Rest&&... rest) {
  at::Tensor* later = written_argument(std::forward<Rest>(rest)...);
  if constexpr (std::is_same_v<First, at::Tensor&>) {
    return later != nullptr ? later : &first;
  } else {
    return later;
  }
}

// New tensors are returned, one or several.
template <typename Result>
inline constexpr bool kMakesTensors = std::is_same_v<Result, at::Tensor>;
template <typename... T>
inline constexpr bool kMakesTensors<std::tuple<T...>> = (std::is_same_v<T, at::Tensor> && ...);

// In place, out=, nothing or new tensors returned, and nothing random: it may be queued (see
// deferral.h).
template <typename Result, typename... Args>
inline constexpr bool kMayBeDeferred =
    (std::is_same_v<Result, at::Tensor&> || std::is_void_v<Result> || kMakesTensors<Result>) &&
    !(std::is_same_v<Args, std::optional<at::Generator>> || ...) &&
    c10::impl::can_box_all<Args...>::value;

template <typename Op, typename Schema>
struct OnCpu;

template <typename Op, typename Result, typename... Args>
struct OnCpu<Op, Result(Args...)> {
  static Result call(Args... args) {
    DeviceFinder finder(Op::name);
    (CpuArgument<Args>::see(finder, args), ...);
    const c10::DeviceIndex device = finder.device();
    if constexpr (kMayBeDeferred<Result, Args...>) {
      CpuCall call(std::try_to_lock, Op::name, device);
      if (call) [[likely]] {
        return compute(call, std::forward<Args>(args)...);
      }
      return on_busy_stream(device, std::forward<Args>(args)...);
    } else {
      CpuCall call(Op::name, device);
      return compute(call, std::forward<Args>(args)...);
    }
  }

 private:
  static Result compute(CpuCall& call, Args... args) {
    std::tuple<CpuArgument<Args>...> in{CpuArgument<Args>(call, std::forward<Args>(args))...};
    const auto redispatch = [&in]() -> Result {
      return std::apply(
          [](auto&... argument) -> Result {
            return Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), argument.get()...);
          },
          in);
    };
    if constexpr (std::is_void_v<Result>) {
      redispatch();
      call.finish();
    } else {
      decltype(auto) result = redispatch();
      call.finish();
      return to_device(call, std::forward<Result>(result));
    }
  }

  [[gnu::noinline]] static Result on_busy_stream(c10::DeviceIndex device, Args... args) {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    const OpenregStream stream = current_stream(device);
    if constexpr (kMakesTensors<Result>) {
      if (auto made = defer_making(op, stream, c10::impl::boxArgs<Args...>(args...))) {
        return c10::impl::PopResult<Result>::call(*made);
      }
    } else if (defer(op, stream, c10::impl::boxArgs<Args...>(args...))) {
      if constexpr (std::is_void_v<Result>) {
        return;
      } else {
        return *written_argument(args...);
      }
    }
    CpuCall call(Op::name, device);
    return compute(call, std::forward<Args>(args)...);
  }
};

}  // namespace detail

// Registers the kernel of `Op` (at::_ops::add_Tensor) in `library` (aten, PrivateUse1).
template <typename Op>
void register_on_cpu(torch::Library& library) {
  using Kernel = detail::OnCpu<Op, typename Op::schema>;
  std::string name = Op::name;
  if (*Op::overload_name != '\0') {
    name = name + "." + Op::overload_name;
  }
  library.impl(name.c_str(), TORCH_FN(&Kernel::call));
}

template <typename... Ops>
void register_all_on_cpu(torch::Library& library) {
  (register_on_cpu<Ops>(library), ...);
}

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_ATEN_ON_CPU_H_
