// C structs of DLPack 1.1, from its public specification: https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstddef>
#include <cstdint>

namespace popsr::dlpack {

inline constexpr std::uint32_t kMajor = 1;  ///< Major version; structs of another one have another layout.
inline constexpr std::uint32_t kMinor = 1;
inline constexpr std::int32_t kCpu = 1;

inline constexpr std::uint64_t kReadOnly = 1U << 0U;
inline constexpr std::uint64_t kCopied = 1U << 1U;
/// Flag: elements of less than 8 bits have a byte each.
inline constexpr std::uint64_t kPaddedBits = 1U << 2U;

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;  ///< Numbers per element.
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< Strides in elements; null: C order.
  std::uint64_t byte_offset;
};

/// Contents of capsules named "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

/// Contents of capsules named "dltensor_versioned".
struct ManagedVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 64 && sizeof(ManagedVersioned) == 80);

}  // namespace popsr::dlpack
