// Command coredns is CoreDNS for the clusters of the tests, without the plugins of cloud
// providers and their clients. tools/kube.sh builds it. Start with main.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"      // plugins register themselves
	_ "github.com/coredns/coredns/plugin/errors"     //
	_ "github.com/coredns/coredns/plugin/forward"    //
	_ "github.com/coredns/coredns/plugin/health"     //
	_ "github.com/coredns/coredns/plugin/hosts"      //
	_ "github.com/coredns/coredns/plugin/kubernetes" //
	_ "github.com/coredns/coredns/plugin/log"        //
	_ "github.com/coredns/coredns/plugin/ready"      //
	_ "github.com/coredns/coredns/plugin/reload"     //
	_ "github.com/coredns/coredns/plugin/template"   //
)

func main() {
	dnsserver.Directives = []string{"reload", "health", "ready", "errors", "log", "cache", "hosts", "template", "kubernetes", "forward"}
	coremain.Run()
}
