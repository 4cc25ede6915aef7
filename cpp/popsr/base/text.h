// Texts for messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace popsr {

/// Lists the up to three names nearest to `name` by edit distance, as "'a', 'b', 'c'".
std::string close_matches(std::string_view name, std::span<const std::string_view> names);

}  // namespace popsr
