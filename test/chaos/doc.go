// Package chaos makes random operator mistakes on a running test cluster, and single
// damages to it, while probes watch the traffic. It guarantees that undocumented outages
// and forbidden packets are reported, and that `netctl status`, /healthz and the alerts
// never say that all is well while allowed traffic fails. A seed repeats the mistakes. It
// must not judge what it cannot repeat: an outage names its seed and step. It is called by
// `make test-lab`, `make test-full` and `make chaos-operator`. Start with TestOperator and
// TestStatusTellsDamages, whose comments have the rules.
package chaos
