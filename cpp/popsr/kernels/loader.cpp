#include "popsr/kernels/loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include <fmt/ranges.h>

#include "popsr/base/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace popsr::kernels {
namespace {

#if defined(__x86_64__)

struct CpuidLeaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
CpuidLeaf cpuid(unsigned leaf) {
  CpuidLeaf r;
  // False for a leaf the CPU does not have: all zero then.
  if (__get_cpuid_count(leaf, 0, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

constexpr bool has_all(unsigned value, std::initializer_list<int> bits) {
  return std::all_of(bits.begin(), bits.end(), [value](int bit) { return ((value >> bit) & 1U) != 0; });
}

/// Register state that the operating system saves (XCR0), 0 without XSAVE.
unsigned saved_state(const CpuidLeaf& basic) {
  if (!has_all(basic.ecx, {27})) return 0;  // OSXSAVE
  unsigned eax = 0;
  unsigned edx = 0;
  __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return eax;
}

/// Levels by the features that the compiler flags of CMakeLists.txt use; bit numbers of the vendors' manuals.
std::vector<std::string> detect_levels() {
  const CpuidLeaf basic = cpuid(1);
  const CpuidLeaf extended = cpuid(7);
  const CpuidLeaf amd = cpuid(0x80000001U);
  const unsigned state = saved_state(basic);
  std::vector<std::string> levels;
  // ssse3, cmpxchg16b, sse4.1, sse4.2, popcnt
  if (!has_all(basic.ecx, {9, 13, 19, 20, 23})) return levels;
  levels.emplace_back("v2");
  // fma, movbe, aes, avx, f16c; bmi1, avx2, bmi2; lzcnt; xmm and ymm state
  if (!has_all(basic.ecx, {12, 22, 25, 28, 29}) || !has_all(extended.ebx, {3, 5, 8}) ||
      !has_all(amd.ecx, {5}) || !has_all(state, {1, 2})) {
    return levels;
  }
  levels.emplace_back("v3");
  // avx512 f, dq, cd, bw, vl; vaes, avx512 vnni; opmask and zmm state
  if (has_all(extended.ebx, {16, 17, 28, 30, 31}) && has_all(extended.ecx, {9, 11}) &&
      has_all(state, {5, 6, 7})) {
    levels.emplace_back("v4");
  }
  return levels;
}

#else

std::vector<std::string> detect_levels() { return {"generic"}; }

#endif

/// Levels that this CPU can run and that the build has: sanitizers are built with one.
std::vector<std::string> runnable_levels() {
  std::vector<std::string> levels = detect_levels();
  constexpr std::string_view built = "," POPSR_LEVELS ",";
  std::erase_if(levels, [&](const std::string& level) {
    return built.find("," + level + ",") == std::string_view::npos;
  });
  return levels;
}

const std::vector<std::string>& levels() {
  static const std::vector<std::string> runnable = runnable_levels();
  return runnable;
}

/// Directory of the shared object or executable that contains this function.
std::filesystem::path own_directory() {
  static const char anchor = 0;
  Dl_info found = {};
  if (dladdr(&anchor, &found) == 0 || found.dli_fname == nullptr) {
    raise<InternalError>("kernels: dladdr does not know the address of the library itself, please report it");
  }
  std::error_code failure;
  std::filesystem::path path = found.dli_fname;
  // A program found through PATH has no directory in its name.
  if (!path.has_parent_path()) path = std::filesystem::read_symlink("/proc/self/exe", failure);
  return std::filesystem::absolute(path, failure).parent_path();
}

const KernelTable& load(const std::string& level) {
  const std::string file = (own_directory() / ("popsr_kernels_" + level + ".so")).string();
  void* object =
      dlopen(file.c_str(), RTLD_LOCAL | RTLD_NOW);  // Never closed: the table lives as long as the process.
  if (object == nullptr) raise<InternalError>("kernels: cannot load '{}': {}", file, dlerror());
  void* symbol = dlsym(object, "popsr_kernel_table");
  if (symbol == nullptr) raise<InternalError>("kernels: '{}' has no function popsr_kernel_table", file);
  return *reinterpret_cast<const KernelTable* (*)()>(symbol)();
}

/// The level `name` of the setting `setting`, checked.
const std::string& checked_level(std::string_view setting, std::string_view name) {
  const auto found = std::find(levels().begin(), levels().end(), name);
  if (found == levels().end()) {
    raise<AttributeValueError>("{}: no such instruction-set level on this CPU, got '{}', expected one of {}",
                               setting, name, fmt::join(levels(), ", "));
  }
  return *found;
}

const KernelTable& default_table() {
  if (levels().empty())
    raise<AttributeValueError>("kernels: the CPU is too old, got none of the levels, expected one of {}",
                               POPSR_LEVELS);
  const char* forced = std::getenv("POPSR_ISA");
  if (forced == nullptr || *forced == '\0') return kernel_table(levels().back());
  return kernel_table(checked_level("POPSR_ISA", forced));
}

std::atomic<const KernelTable*>& current_table() {
  static std::atomic<const KernelTable*> table = &default_table();
  return table;
}

}  // namespace

const KernelTable& kernel_table() { return *current_table().load(std::memory_order_acquire); }

void use_kernel_table(const KernelTable& table) { current_table().store(&table, std::memory_order_release); }

const KernelTable& kernel_table(std::string_view level) {
  static std::mutex mutex;
  static std::map<std::string, const KernelTable*, std::less<>> loaded;
  const std::string& name = checked_level("kernel_table", level);
  const std::lock_guard lock(mutex);
  const KernelTable*& table = loaded[name];
  if (table == nullptr) table = &load(name);
  return *table;
}

std::vector<std::string> available_levels() { return levels(); }

}  // namespace popsr::kernels
