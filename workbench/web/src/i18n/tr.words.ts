// Turkish: settings with a sentence of help each, and words for the engine's
// codes. The keys are the engine's.
import {
  type choices as enChoices,
  type errors as enErrors,
  type memory as enMemory,
  pair,
  type sampling as enSampling,
  type settings as enSettings,
  type stages as enStages,
  type states as enStates,
  type units as enUnits,
  type warnings as enWarnings,
} from "./en.words";

export { pair };

export const settings: typeof enSettings = {
  layers: pair("Katman", "Dikkat ile ileri beslemenin kaç kez art arda geldiği; derinlik. Bellek ve süre onunla büyür."),
  d_model: pair("Genişlik", "Katmanlar arasında bir belirteci temsil eden sayı adedi. Bellek ve süre karesiyle büyür."),
  heads: pair("Dikkat başı", "Her katmanın geriye kaç ayrı biçimde baktığı; baş boyutu verilmemişse genişliği bölmelidir."),
  kv_heads: pair("Anahtar/değer başı", "Anahtar ve değerlerin paylaşıldığı baş sayısı; azı, yazarken bellek kazandırır."),
  head_dim: pair("Baş boyutu", "Tek bir başın genişliği; çift sayı olmalı."),
  ffn: pair("İleri besleme genişliği", "İleri besleme bölümünün iç genişliği; genellikle genişliğin iki ile dört katı."),
  activation: pair("Etkinleştirme", "İleri besleme bölümündeki bükülme; LLaMA silu kullanır."),
  tied: pair("Girdi ve çıktıya tek tablo", "Koca bir belirteç tablosundan tasarruf eder; küçük modeller bununla daha iyidir."),
  rope_theta: pair("RoPE tabanı", "Konumların ne kadar yavaş döndüğü; uzun bağlamda büyük olmalı."),
  norm_eps: pair("Norm epsilonu", "Normun sıfıra bölmesini önler."),
  init_std: pair("Başlangıç yayılımı", "Baştaki rastgele ağırlıkların yayılımı."),
  context: pair("Bağlam", "Modelin bir bakışta gördüğü belirteç sayısı. Bellek onunla, süre biraz daha hızlı büyür."),
  batch: pair("Yığın", "Aynı anda öğrenilen satır sayısı. Çoğu daha dengeli öğretir ama daha çok bellek ister."),
  accum: pair("Biriktirme", "Tek adımda toplanan yığın sayısı: küçük yığının belleğiyle büyük yığın; adım başına süre artar."),
  seed: pair("Tohum", "İlk ağırlıkları ve verinin sırasını belirler; aynı tohum aynı eğitimi verir."),
  val_fraction: pair("Ayrılan pay", "Verinin hiç öğrenilmeyen, doğrulama kaybını ölçen bölümü."),
  doc_mask: pair("Belgeleri ayrı tut", "Aynı satırdaki belgeler birbirini görmez."),
  max_steps: pair("Adım", "Ağırlıkların kaç kez güncelleneceği. Boş: veriden bir geçiş."),
  epochs: pair("Geçiş", "Adım sayısı yerine verinin kaç kez okunacağı. Dört geçişten sonra küçük modeller ezberlemeye başlar."),
  max_tokens: pair("Belirteç", "Adım sayısı yerine, bu kadar belirteçten sonra biter."),
  max_minutes: pair("Dakika", "Adım ne olursa olsun bu kadar eğitim süresinden sonra biter; çizelge buna göre değişmez."),
  lr: pair(
    "Öğrenme oranı",
    "Ağırlıkların attığı en büyük adım. Boş: boyuta uygun olanı. Büyüğü ıraksar, küçüğü zaman kaybettirir.",
  ),
  schedule: pair("Çizelge", "Isınmadan sonra oranın nasıl düştüğü."),
  warmup: pair("Isınma", "Başlangıç ağırlıkları sarsmasın diye oranın sıfırdan yükseldiği adımlar."),
  min_lr: pair("Son oran", "Çizelgenin bittiği yer; genellikle tepenin onda biri."),
  decay_steps: pair("Düşüş adımları", "wsd çizelgesinde oranın düştüğü son bölüm."),
  weight_decay: pair("Ağırlık sönümü", "Matrisleri hafifçe sıfıra çeker; 0,1 olağandır."),
  clip: pair("Kırpma", "Gradyan normunun üst sınırı; 0 kapatır."),
  beta1: pair("Beta 1", "AdamW'nin yönü ne kadar süre hatırladığı."),
  beta2: pair("Beta 2", "AdamW'nin gradyan büyüklüğünü ne kadar süre hatırladığı."),
  eps: pair("Epsilon", "AdamW'nin sıfıra bölmesini önler."),
  nonfinite: pair("Sonlu olmayan gradyanlar", "İçinde NaN ya da sonsuz bulunan adıma ne yapılacağı."),
  precision: pair(
    "Duyarlık",
    "Karma, ileri geçişte 16 bitlik ağırlık okur: ekran kartlarının çoğunda hızlı, işlemcide yavaştır. 16 bitlik çarpımlar kartın matris birimlerini ister; bunlara yalnız sunucu ulaşır ve eğitim birkaç kat hızlanır. Yoksa eğitim 32 bitle sürer ve bunu söyler.",
  ),
  moments8: pair(
    "8 bitlik eniyileyici",
    "AdamW'nin belleği parametre başına 8 yerine 2 bayt; kayıp yaklaşık yüzde bir içinde kalır.",
  ),
  recompute: pair(
    "Etkinleştirmeleri yeniden hesapla",
    "Dönüş yolu için az şey saklar, gerisini yeniden hesaplar: çok daha az bellek, yaklaşık üçte bir daha çok süre.",
  ),
  label_smoothing: pair("Etiket yumuşatma", "Olasılığın birazını öteki belirteçlere dağıtır."),
  z_loss: pair("Z kaybı", "Logitleri sıfıra yakın tutar; 0,0001 büyük eğitimleri dengeler."),
  eval_every: pair("Ölçme aralığı", "Ayrılan metinde iki ölçüm arasındaki adım sayısı."),
  checkpoint_every: pair("Kayıt aralığı", "İki kayıt arasındaki adım sayısı; bir aksaklıktan sonra eğitim son kayıttan sürer."),
  keep: pair("Tutulan kayıt", "Eskileri silinir; −1 hepsini tutar."),
  sample_every: pair("Örnek aralığı", "Modelin yazdığı kısa metinler arasındaki adım sayısı. Boş: örnek yok."),
  sample_prompt: pair("Örneğin başı", "Örneklerin devam ettirdiği metin."),
  sample_tokens: pair("Örnek uzunluğu", "Bir örneğin belirteç sayısı."),
};

export const choices: typeof enChoices = {
  silu: "silu (SwiGLU)",
  gelu_tanh: "gelu",
  cosine: "kosinüs: yarım dalga gibi düşer",
  linear: "doğrusal: düz bir çizgiyle düşer",
  wsd: "wsd: sabit kalır, sonda düşer",
  constant: "sabit",
  skip: "adımı atla",
  zero: "sıfır say",
  stop: "eğitimi durdur",
  f32: "32 bit",
  mixed: "karma, 16 bitlik ağırlıklar",
  bf16: "bfloat16 çarpımlar, matris birimlerinde",
  f16: "float16 çarpımlar, matris birimlerinde",
};

export const sampling: typeof enSampling = {
  max_tokens: pair("Uzunluk", "En çok yeni belirteç."),
  temperature: pair("Sıcaklık", "0 hep en olasıyı seçer; yükseldikçe cesareti artar."),
  top_k: pair("İlk k", "Yalnızca en olası k belirteç; 0: hepsi."),
  top_p: pair("İlk p", "Yalnızca olasılıkları toplamı buna ulaşan en olası belirteçler; 1: hepsi."),
  min_p: pair("En az p", "Yalnızca olasılığı en olasınınkinin en az bu kadarı olan belirteçler; 0: hepsi."),
  repetition_penalty: pair("Yineleme cezası", "1'in üstü, daha önce söyleneni daha az olası kılar."),
  seed: pair("Tohum", "Aynı tohum aynı metni verir. Boş: her seferinde yenisi."),
};

export const states: typeof enStates = {
  running: "eğitiliyor",
  starting: "başlıyor",
  pausing: "duraklatılıyor",
  paused: "duraklatıldı",
  done: "bitti",
  failed: "başarısız",
  stopped: "durduruldu",
};

export const warnings: typeof enWarnings = {
  nonfinite: (count) =>
    `${count} gradyan NaN ya da sonsuz çıktı; adım, ayarların dediği gibi ele alındı. Yinelenirse öğrenme oranını düşürün.`,
  lossRising: (from, to) =>
    `Kayıp yükseliyor: ${from} iken ${to} oldu. Daha düşük bir öğrenme oranı ya da daha uzun bir ısınma çoğu zaman işe yarar.`,
  overfitting: (best, now, since) =>
    `Doğrulama kaybı en iyi değerine ${since}. adımda ulaştı (${best}), şimdi ${now}: model verisini ezberlemeye başlıyor. Daha çok veri ya da burada durmak daha iyi.`,
  diverged: (loss) =>
    `Eğitim ıraksadı: kayıp ${loss}, rastgele tahminden bile kötü. Daha küçük bir öğrenme oranıyla yeniden başlatın.`,
  slowStart: "Kayıp şimdiye dek pek kıpırdamadı. Öğrenme oranı çok küçük ya da ısınma çok uzun olabilir.",
  skipped: (count) => `Sonlu olmayan gradyanlar yüzünden art arda ${count} adım atlandı.`,
};

export const errors: typeof enErrors = {
  bad_request: "Motor bunu kabul etmiyor",
  unauthorized: "Erişim anahtarı artık geçerli değil; sunucunun yazdırdığı adresi açın",
  forbidden: "Sunucu bu sayfayı reddediyor",
  not_found: "Bu artık yerinde değil",
  exists: "Bu ad alınmış",
  busy: "Bu şu anda kullanımda",
  too_large: "Bu çok büyük",
  no_space: "Yer kalmadı; artık gerekmeyen eğitimleri ya da dosyaları silin",
  device: "Aygıt arızalandı",
  internal: "Bir şeyler ters gitti",
  unreachable: "Motora ulaşılamıyor",
};

export const stages: typeof enStages = {
  read: "okunuyor",
  count: "sözcükler sayılıyor",
  merge: "parçalar birleştiriliyor",
  encode: "kodlanıyor",
  write: "yazılıyor",
  steps: "adımlar atılıyor",
  load: "yükleniyor",
  check: "denetleniyor",
  convert: "dönüştürülüyor",
  copy: "kopyalanıyor",
};

export const units: typeof enUnits = {
  "merges/s": "birleştirme/sn",
  "tokens/s": "belirteç/sn",
  "documents/s": "belge/sn",
  "steps/s": "adım/sn",
  "MB/s": "MB/sn",
  "B/s": "/sn",
  merges: "birleştirme",
};

export const memory: typeof enMemory = {
  weights: "ağırlıklar",
  adapter: "uyarlayıcı",
  gradients: "gradyanlar",
  moments: "eniyileyici",
  "moments (8-bit)": "eniyileyici, 8 bit",
  "float16 mirror": "ağırlıkların 16 bitlik kopyası",
  "bfloat16 mirror": "ağırlıkların 16 bitlik kopyası",
  activations: "etkinleştirmeler",
  "logits chunk": "logitler",
  "backward scratch": "dönüş yolunun çalışma alanı",
  "kernel scratch": "çekirdeklerin çalışma alanı",
  "optimizer work space": "eniyileyicinin çalışma alanı",
  "batch and positions": "yığın",
  decoder: "kod çözücü",
  "KV cache": "anahtar ve değerler",
};
