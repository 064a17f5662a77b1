package main

import (
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/netplugin/dns"
)

const (
	dnsOn  = "on"
	dnsOff = "off"
)

func dnsFlags(fs *daemon.FlagSet, o *options) {
	fs.Enum(&o.dns, daemon.Flag{
		Name: "dns", Env: envPrefix + "DNS", Value: "on|off",
		Usage: "answer containers' queries to port 53 with the names of their tenant, and forward the rest",
	}, dnsOn, dnsOff)
	fs.String(&o.dnsUpstream, daemon.Flag{
		Name: "dns-upstream", Env: envPrefix + "DNS_UPSTREAM", Value: "addresses",
		Usage: "resolvers that other names are asked of, comma-separated, with or without port", Default: "those of " + dns.ResolvConf,
		Check: func(v string) error { _, err := dns.ParseUpstreams(v); return err },
	})
}
