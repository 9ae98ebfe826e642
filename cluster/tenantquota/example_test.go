package tenantquota_test

import (
	"fmt"

	"github.com/kubetenant/kubetenant/cluster/tenantquota"
	"github.com/kubetenant/kubetenant/tenant"
)

func ExampleDefaultName() {
	acme, _ := tenant.Parse("acme")
	fmt.Println(tenantquota.DefaultName(acme))
	// Output:
	// acme
}
