package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// Prometheus runs a Prometheus that scrapes the lab, and asks it.
type Prometheus struct {
	*core
	processes    *processes
	certificates *certificates
}

// PrometheusProgram evaluates alert rules; Debian's package prometheus has it.
const PrometheusProgram = "/usr/bin/prometheus"

// inspected is where netplugin answers Prometheus: at each of its addresses (Config.AgentArgs
// has to say so).
const inspected = "9006"

// prometheusURL is the server's address in the master's namespace.
const prometheusURL = "http://127.0.0.1:9090"

// StartPrometheus has a Prometheus in the master's namespace scrape all netmasters and hosts,
// and evaluate a file of alert rules, each once a second. It does not wait for its first
// answer. Where it runs already, it reads its configuration again: a cluster that has become
// secure is scraped by TLS.
func (l *Prometheus) StartPrometheus(rules string) error {
	dir := filepath.Join(l.st.Config.Dir, "prometheus")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, "prometheus.json")
	config, err := json.Marshal(l.prometheusConfig(rules)) // which is YAML too
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	if p := l.Process("prometheus"); p.Alive() {
		return p.Signal(syscall.SIGHUP)
	}
	_, err = l.processes.start(l.Master, "prometheus", dir, nil, PrometheusProgram, "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", strings.TrimPrefix(prometheusURL, "http://"), "--log.level", "warn")
	return err
}

func (l *Prometheus) prometheusConfig(rules string) map[string]any {
	const often = "1s"
	job := func(name string, addresses []string) map[string]any {
		j := map[string]any{"job_name": name, "scheme": scheme(l.certificates.restTLS()), "static_configs": []any{map[string]any{"targets": addresses}}}
		if l.certificates.restTLS() {
			dir := l.certificates.adminDir()
			j["tls_config"] = map[string]any{"ca_file": filepath.Join(dir, pki.BundleFile), "cert_file": filepath.Join(dir, "tls.crt"), "key_file": filepath.Join(dir, "tls.key")}
		}
		return j
	}
	var masters, hosts []string
	for n := range l.st.Config.Replicas {
		masters = append(masters, replicaAddress(n+1).String()+":9999")
	}
	for _, h := range l.hosts {
		hosts = append(hosts, h.Control.String()+":"+inspected)
	}
	return map[string]any{
		"global":         map[string]any{"scrape_interval": often, "scrape_timeout": often, "evaluation_interval": often},
		"rule_files":     []string{rules},
		"scrape_configs": []any{job("contiv-netmaster", masters), job("contiv-netplugin", hosts)},
	}
}

// Alerts returns the alerts that are pending or firing by what all targets have told since it
// was called, and the targets that did not answer.
func (l *Prometheus) Alerts(ctx context.Context) (alerts, silent []string, err error) {
	asked := time.Now()
	var scraped time.Time // when each target had been asked since
	err = until(ctx, "Prometheus to evaluate the alert rules", func(ctx context.Context) (err error) {
		if scraped.IsZero() {
			if silent, err = l.scrapedSince(ctx, asked); err != nil {
				return err
			}
			scraped = time.Now()
		}
		alerts, err = l.evaluatedSince(ctx, scraped)
		return err
	})
	return alerts, silent, err
}

// scrapedSince fails until all targets were asked after a time; it returns the ones that
// did not answer.
func (l *Prometheus) scrapedSince(ctx context.Context, since time.Time) (silent []string, err error) {
	var told struct {
		ActiveTargets []struct {
			ScrapeURL, LastError, Health string
			LastScrape                   time.Time
		}
	}
	if err := l.askPrometheus(ctx, "/api/v1/targets?state=active", &told); err != nil {
		return nil, err
	}
	if len(told.ActiveTargets) == 0 {
		return nil, errors.New("it has no targets yet")
	}
	for _, t := range told.ActiveTargets {
		if !t.LastScrape.After(since) {
			return nil, fmt.Errorf("%s was not asked since %v", t.ScrapeURL, since)
		}
		if t.Health != "up" {
			silent = append(silent, t.ScrapeURL+": "+t.LastError)
		}
	}
	return silent, nil
}

// evaluatedSince fails until all rules were evaluated after a time; it returns the alerts.
func (l *Prometheus) evaluatedSince(ctx context.Context, since time.Time) (alerts []string, err error) {
	var told struct {
		Groups []struct {
			LastEvaluation time.Time
			Rules          []struct {
				LastError string
				Alerts    []struct {
					State  string
					Labels map[string]string
				}
			}
		}
	}
	if err := l.askPrometheus(ctx, "/api/v1/rules?type=alert", &told); err != nil {
		return nil, err
	}
	if len(told.Groups) == 0 {
		return nil, errors.New("it has no rules yet")
	}
	for _, g := range told.Groups {
		if !g.LastEvaluation.After(since) {
			return nil, fmt.Errorf("they were not evaluated since %v", since)
		}
		for _, r := range g.Rules {
			if r.LastError != "" {
				return nil, errors.New(r.LastError)
			}
			for _, a := range r.Alerts {
				alerts = append(alerts, fmt.Sprint(a.State, " ", a.Labels))
			}
		}
	}
	slices.Sort(alerts)
	return alerts, nil
}

func (l *Prometheus) askPrometheus(ctx context.Context, path string, data any) error {
	text, err := l.Master.get(ctx, prometheusURL+path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &struct{ Data any }{data})
}
