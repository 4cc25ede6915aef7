#include "popsr/runtime/ranks/rank_failure.h"

#include <new>

#include "popsr/base/error.h"

namespace popsr {
namespace {

/// Calls visit(instance of T*, name) for each class of errors.
template <class Visit>
void for_each_class(const Visit& visit) {
  visit(static_cast<ShapeError*>(nullptr), "ShapeError");
  visit(static_cast<DTypeError*>(nullptr), "DTypeError");
  visit(static_cast<AttributeValueError*>(nullptr), "AttributeValueError");
  visit(static_cast<GraphError*>(nullptr), "GraphError");
  visit(static_cast<ReplicaError*>(nullptr), "ReplicaError");
  visit(static_cast<OutOfRangeError*>(nullptr), "OutOfRangeError");
  visit(static_cast<NameError*>(nullptr), "UnknownNameError");
  visit(static_cast<StoppedError*>(nullptr), "StoppedError");
  visit(static_cast<FloatingPointError*>(nullptr), "FloatingPointError");
  visit(static_cast<RankError*>(nullptr), "RankError");
  visit(static_cast<InternalError*>(nullptr), "InternalError");
}

}  // namespace

RankFailure failure_of(const std::exception_ptr& error) {
  RankFailure failure;
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    failure.kind = "Error";
    failure.text = e.what();
    for_each_class([&]<class E>(E*, const char* name) {
      if (dynamic_cast<const E*>(&e) != nullptr) failure.kind = name;
    });
  } catch (const std::bad_alloc& e) {
    failure.kind = "MemoryError";
    failure.text = e.what();
  } catch (const std::exception& e) {
    failure.text = e.what();
  } catch (...) {
    failure.text = "the end of its process";
  }
  return failure;
}

void raise_failure(const RankFailure& failure) {
  for_each_class([&]<class E>(E*, const char* name) {
    if (failure.kind == name) throw E(failure.text);
  });
  const std::string first_line = failure.text.substr(0, failure.text.find('\n'));
  raise<StoppedError>("run: rank {} ended it, got {}{}{}, expected no error of a rank", failure.rank,
                      failure.kind, failure.kind.empty() ? "" : ": ", first_line);
}

}  // namespace popsr
