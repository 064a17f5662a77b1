package policyapi

import (
	"flag"
	"testing"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	api "sigs.k8s.io/network-policy-api/apis/v1beta1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

var list = flag.Bool("list", false, "only name the tests, one a line")

// TestClusterNetworkPolicy runs the whole suite, what is experimental included.
func TestClusterNetworkPolicy(t *testing.T) {
	if *list {
		for _, c := range tests.ConformanceTests {
			t.Log("test " + c.ShortName)
		}
		return
	}
	cfg, err := config.GetConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.Install(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	s := suite.New(suite.Options{Client: c, ClientSet: clients, KubeConfig: *cfg, Debug: testing.Verbose(), EnableAllSupportedFeatures: true})
	s.Setup(t)
	s.Run(t, tests.ConformanceTests)
}
