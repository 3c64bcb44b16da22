#include <algorithm>
#include <array>
#include <string>

#include "model/arch/family.h"

namespace shoal::model {

std::span<const Family* const> families() {
  static constexpr std::array kFamilies = {&kLlamaFamily, &kMistralFamily, &kQwen2Family,
                                           &kQwen3Family};
  return kFamilies;
}

const Family* find_family(FileFormat format, std::string_view architecture) {
  if (architecture.empty()) return nullptr;
  // A decoder saved alone: "Qwen3Model" of "Qwen3ForCausalLM".
  constexpr std::string_view kAlone = "Model";
  std::string whole;
  if (format == FileFormat::kSafetensors && architecture.ends_with(kAlone)) {
    whole = architecture.substr(0, architecture.size() - kAlone.size());
    architecture = whole += "ForCausalLM";
  }
  const auto all = families();
  const auto found = std::ranges::find_if(all, [&](const Family* family) {
    return architecture ==
           (format == FileFormat::kGguf ? family->gguf_architecture : family->hf_architecture);
  });
  return found == all.end() ? nullptr : *found;
}

Status refuse_if_true(const ConfigReader& reader, const std::string& key,
                      std::string_view meaning) {
  ASSIGN_OR_RETURN(const auto value, reader.boolean(key));
  if (!value.value_or(false)) return Status::ok();
  return reader.refuse(key, "asks for " + std::string(meaning) + ", which Shoal does not compute");
}

}  // namespace shoal::model
