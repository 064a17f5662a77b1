package main

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/controller"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/translate"
)

// kubeServices are the settings for Kubernetes' services.
type kubeServices struct {
	ranges, external []netip.Prefix
	pool             model.AddressPool
	given            struct{ ranges, external, pool []string } // before finish
}

// register binds the flags.
func (k *kubeServices) register(fs *flags.Set) {
	fs.Strings(&k.given.ranges, "service-cidr", "prefixes", "with --kubeconfig: service address ranges, comma-separated, that networks must not overlap, in addition to ServiceCIDR objects (Kubernetes 1.33 and newer); empty = kubeadm's serviceSubnet").Must(checkPrefixes)
	fs.Strings(&k.given.pool, "load-balancer-pool", "addresses", "with --kubeconfig: addresses, CIDRs and ranges first-last, comma-separated, for services of type LoadBalancer without a class or of class "+translate.PoolClass+"; nodes announce those of their own subnets").Must(func(v string) error { _, err := model.ParseAddressPool("pool", flags.Split(v)); return err })
	fs.Strings(&k.given.external, "external-ip-ranges", "prefixes", "with --kubeconfig: ranges, comma-separated, in which services may have externalIPs; empty = externalIPs are ignored (kube-proxy accepts all)").Must(checkPrefixes)
}

// finish reads what is given.
func (k *kubeServices) finish(fs *flags.Set, kubeconfig string) (err error) {
	for _, flag := range []string{"service-cidr", "load-balancer-pool", "external-ip-ranges"} {
		if how := fs.Given(flag); how != "" && kubeconfig == "" {
			return flags.Usagef("%s is for Kubernetes; name it with --kubeconfig", how)
		}
	}
	k.ranges, k.external = parsePrefixes(k.given.ranges), parsePrefixes(k.given.external)
	for i, p := range k.ranges {
		if j := slices.IndexFunc(k.ranges[:i], p.Overlaps); j >= 0 {
			return flags.Usagef("--service-cidr: %s and %s overlap: give each range once", k.ranges[j], p)
		}
	}
	if len(k.given.pool) == 0 {
		return nil
	}
	if k.pool, err = model.ParseAddressPool("--load-balancer-pool", k.given.pool); err != nil {
		return flags.Usagef("%w", err)
	}
	return nil
}

// checkPrefixes wants prefixes without bits of a host, and none of all addresses.
func checkPrefixes(v string) error {
	all := flags.Split(v)
	if got := parsePrefixes(all); len(all) == 0 || len(got) != len(all) || slices.ContainsFunc(got, func(p netip.Prefix) bool {
		return p != p.Masked() || p.Bits() == 0 || p.Addr().Is4In6()
	}) {
		return errors.New("must be prefixes such as 10.96.0.0/12, comma-separated, without host bits, and not all addresses (/0)")
	}
	return nil
}

func parsePrefixes(all []string) (out []netip.Prefix) {
	for _, text := range all {
		if p, err := netip.ParsePrefix(text); err == nil { // checkPrefixes has seen them
			out = append(out, p)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// config is what the controller of Kubernetes' services takes from flags.
func (k *kubeServices) config() controller.ServicesConfig {
	return controller.ServicesConfig{Ranges: k.ranges, MoreRanges: len(k.ranges) == 0, External: k.external, Pool: k.pool}
}
