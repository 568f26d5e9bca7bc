package workbench

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tezgah/workbench/engine"
)

// makeMetrics builds the registry behind /metrics. It is the server's own, so
// that nothing else of the program gets into it.
func (s *Server) makeMetrics() {
	reg := prometheus.NewRegistry()
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tezgah_requests_total", Help: "HTTP requests, by the request of the interface and the status of the answer.",
	}, []string{"path", "code"})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tezgah_info", Help: "1, with the program's version and its device.",
		ConstLabels: prometheus.Labels{"version": s.opt.Version, "device": s.opt.Device},
	})
	info.Set(1)
	reg.MustRegister(s.requests, info, runCollector{s.opt.Service},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

// runGauge is one number of every run.
type runGauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(engine.Run) float64
}

func newRunGauge(name, help string, kind prometheus.ValueType, value func(engine.Run) float64) runGauge {
	return runGauge{prometheus.NewDesc("tezgah_run_"+name, help, []string{"run"}, nil), kind, value}
}

// runGauges are the numbers of a run that are served.
var runGauges = []runGauge{
	newRunGauge("step", "Optimizer steps done.", prometheus.GaugeValue, func(r engine.Run) float64 { return float64(r.Step) }),
	newRunGauge("last_step", "The step at which the run ends.", prometheus.GaugeValue, func(r engine.Run) float64 { return float64(r.LastStep) }),
	newRunGauge("running", "1 while the run trains, else 0.", prometheus.GaugeValue, func(r engine.Run) float64 {
		if r.State == "running" {
			return 1
		}
		return 0
	}),
	newRunGauge("loss", "Training loss of the last step, nats a token.", prometheus.GaugeValue, func(r engine.Run) float64 { return float64(r.Loss) }),
	newRunGauge("val_loss", "Loss on held-out text, nats a token; 0 before it is measured.", prometheus.GaugeValue, func(r engine.Run) float64 { return float64(r.ValLoss) }),
	newRunGauge("learning_rate", "Learning rate of the last step.", prometheus.GaugeValue, func(r engine.Run) float64 { return r.LR }),
	newRunGauge("grad_norm", "Norm of the last step's gradient before clipping.", prometheus.GaugeValue, func(r engine.Run) float64 { return float64(r.GradNorm) }),
	newRunGauge("tokens_total", "Tokens trained on.", prometheus.CounterValue, func(r engine.Run) float64 { return float64(r.Tokens) }),
	newRunGauge("tokens_per_second", "Speed of the last step; 0 while the run does not train.", prometheus.GaugeValue, func(r engine.Run) float64 {
		if r.State != "running" {
			return 0
		}
		return r.TokPerSec
	}),
	newRunGauge("nonfinite_total", "NaN and infinite gradients.", prometheus.CounterValue, func(r engine.Run) float64 { return float64(r.NonFinite) }),
}

var generatedDesc = prometheus.NewDesc("tezgah_generated_tokens_total", "Tokens generated since the start.", nil, nil)

// runCollector asks the service when it is scraped.
type runCollector struct{ service *engine.Service }

// Describe implements prometheus.Collector.
func (c runCollector) Describe(out chan<- *prometheus.Desc) {
	out <- generatedDesc
	for _, g := range runGauges {
		out <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c runCollector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(generatedDesc, prometheus.CounterValue, float64(c.service.Generated()))
	for _, r := range c.service.Runs() {
		for _, g := range runGauges {
			out <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(r), r.Name)
		}
	}
}
