package apiserver

var _ = tested("Bgps", kindCases{
	object: `{"hostname":"host1","routerip":"50.1.1.2/24","as":"65002","neighbor-as":"65000","neighbor":"50.1.1.1"}`, key: []string{"hostname"},
	fields: map[string]cases{
		"hostname":    {[]string{`{"hostname":"host1"}`, change("hostname", text256)}, []string{`{"hostname":"none"}`, `{"hostname":""}`, `{"hostname":"bad_h"}`, change("hostname", text257)}},
		"routerip":    {[]string{`{"routerip":"50.1.1.2/24"}`, `{"routerip":"50.1.1.2/31"}`, `{"routerip":"50.1.1.2/32"}`}, []string{`{"routerip":""}`, `{"routerip":"50.1.1.2"}`, `{"routerip":"50.1.1.0/24"}`, `{"routerip":"50.1.1.255/24"}`, `{"routerip":"50.1.1.2/33"}`, `{"routerip":"2001:db8::2/64"}`, `{"routerip":"127.0.0.1/8"}`}},
		"as":          {[]string{`{"as":"1"}`, `{"as":"4294967295"}`}, []string{`{"as":""}`, `{"as":"0"}`, `{"as":"abc"}`, `{"as":"4294967296"}`, `{"as":"99999999999"}`, `{"as":"-1"}`, `{"as":"065"}`, `{"as":65000}`}},
		"neighbor-as": {[]string{`{"neighbor-as":"1"}`, `{"neighbor-as":"4294967295"}`}, []string{`{"neighbor-as":""}`, `{"neighbor-as":"0"}`, `{"neighbor-as":"x"}`, `{"neighbor-as":"4294967296"}`}},
		"neighbor":    {[]string{`{"neighbor":""}`, `{"neighbor":"50.1.1.9"}`}, []string{`{"neighbor":"abc"}`, `{"neighbor":"50.1.1.2"}`, `{"neighbor":"50.1.1.1/24"}`, `{"neighbor":"2001:db8::1"}`, `{"neighbor":"224.0.0.1"}`}},
	},
})
