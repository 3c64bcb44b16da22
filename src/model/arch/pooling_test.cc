#include "model/arch/pooling.h"

#include "model/model.h"
#include "model/testing/matchers.h"
#include "model/testing/temp_folder.h"
#include "model/testing/tiny_model.h"

namespace shoal::model {
namespace {

using testing::expect_refused;
using testing::GgufWriter;
using testing::TempFolder;
using testing::TinyModel;

Result<std::unique_ptr<Model>> load_gguf(uint32_t pooling_type) {
  TinyModel model;
  model.add_keys = [=](GgufWriter& writer) { writer.add_u32("llama.pooling_type", pooling_type); };
  const TempFolder folder;
  return load_model(folder.write("m.gguf", model.gguf()));
}

// A safetensors folder with these files of sentence-transformers; empty: without.
Result<std::unique_ptr<Model>> load_folder(std::string_view pooling, std::string_view modules) {
  const TempFolder folder;
  const TinyModel model;
  model.write_safetensors(folder, model.config_json());
  if (!pooling.empty()) folder.write("1_Pooling/config.json", pooling);
  if (!modules.empty()) folder.write("modules.json", modules);
  return load_model(folder.path());
}

ModelConfig config_of(Result<std::unique_ptr<Model>> model) {
  CHECK_MSG(model.is_ok(), model.status().message().c_str());
  return (*model)->config;
}

TEST(ReadPooling, GgufSaysItByANumber) {
  EXPECT_EQ(config_of(load_gguf(0)).pooling, Pooling::kLast) << "it says none: the default";
  EXPECT_EQ(config_of(load_gguf(1)).pooling, Pooling::kMean);
  EXPECT_EQ(config_of(load_gguf(3)).pooling, Pooling::kLast);
  EXPECT_EQ(config_of(load_gguf(3)).unserved_embedding, "");
  EXPECT_EQ(config_of(load_gguf(2)).unserved_embedding, "the pooling 'cls'");
  EXPECT_EQ(config_of(load_gguf(4)).unserved_embedding, "the pooling 'rank'");
  expect_refused(load_gguf(5), {"'llama.pooling_type'", "is 5", "0 to 4"});
}

TEST(ReadPooling, SentenceTransformersSayItInAFileOfTheirs) {
  EXPECT_EQ(config_of(load_folder("", "")).pooling, Pooling::kLast);
  const auto with = [](std::string_view pooling) { return config_of(load_folder(pooling, "")); };
  EXPECT_EQ(with(R"({"pooling_mode": "mean"})").pooling, Pooling::kMean);
  EXPECT_EQ(with(R"({"pooling_mode": "lasttoken"})").pooling, Pooling::kLast);
  const ModelConfig older =
      with(R"({"word_embedding_dimension": 24, "pooling_mode_cls_token": false,)"
           R"( "pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false})");
  EXPECT_EQ(older.pooling, Pooling::kMean);
  EXPECT_EQ(older.unserved_embedding, "");
  EXPECT_EQ(with(R"({"pooling_mode_lasttoken": true})").pooling, Pooling::kLast);
  EXPECT_EQ(with(R"({"pooling_mode_max_tokens": true})").unserved_embedding, "the pooling 'max'");
  EXPECT_NE(with(R"({"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": true})")
                .unserved_embedding,
            "");
  expect_refused(load_folder(R"({"pooling_mode": 1})", ""), {"1_Pooling", "'pooling_mode'"});
  expect_refused(load_folder("[]", ""), {"1_Pooling", "object"});
  expect_refused(load_folder("{", ""), {"1_Pooling"});
}

TEST(ReadPooling, AModuleThatNothingHereComputesIsNamed) {
  const auto with = [](std::string_view modules) { return config_of(load_folder("", modules)); };
  EXPECT_EQ(with(R"([{"type": "sentence_transformers.models.Transformer"},)"
                 R"( {"type": "sentence_transformers.models.Pooling"},)"
                 R"( {"type": "sentence_transformers.models.Normalize"}])")
                .unserved_embedding,
            "");
  EXPECT_EQ(with(R"([{"type": "sentence_transformers.models.Dense"}])").unserved_embedding,
            "the module 'Dense'");
  expect_refused(load_folder("", R"([{"path": ""}])"), {"modules.json", "'type'"});
  expect_refused(load_folder("", "{}"), {"modules.json", "list"});
}

}  // namespace
}  // namespace shoal::model
