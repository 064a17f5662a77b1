package main

import (
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netplugin/dns"
)

const (
	dnsOn  = "on"
	dnsOff = "off"
)

func dnsFlags(fs *flags.Set, o *options) {
	fs.Enum(&o.dns, "dns", "on|off", "answer containers' queries to port 53 with the names of their tenant, and forward the rest", dnsOn, dnsOff)
	fs.String(&o.dnsUpstream, "dns-upstream", "addresses", "resolvers for all other names, comma-separated, with or without port").Must(func(v string) error { _, err := dns.ParseUpstreams(v); return err }).Else("those of " + dns.ResolvConf)
}
