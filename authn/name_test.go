// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"encoding/hex"
	"testing"
)

// TestDistinguishedName compares names with the output of "openssl x509 -issuer -nameopt RFC2253"
// (OpenSSL 3.0).
func TestDistinguishedName(t *testing.T) {
	for der, want := range map[string]string{
		"30183116301406035504030c0d6b756265726e657465732d6361":                               "CN=kubernetes-ca",
		"3027310d300b06035504030c04526f6f74310a3008060355040b0c0162310a3008060355040b0c0161": "OU=a,OU=b,CN=Root",
		"303d31133011060a0992268993f22c6401191603636f6d31143012060a0992268993f22c64" +
			"0119160461636d653110300e06035504030c07414420526f6f74": "CN=AD Root,DC=acme,DC=com",
		"308181310b30090603550406130244453110300e06035504080c07426520726c696e310a30" +
			"0806035504070c0158311d301b060355040a0c1441636d652c20496e632e20227822203c793e3b7a311f300b06035504030c04526f6f7430" +
			"10060a0992268993f22c6401010c0275313114301206092a864886f70d01090116056140622e63": `emailAddress=a@b.c,` +
			`UID=u1+CN=Root,O=Acme\, Inc. \"x\" \<y\>\;z,L=X,ST=Be rlin,C=DE`,
		"30203110300e060355040a0c074dc3bc6c6c6572310c300a06035504030c03237820": `CN=\#x\ ,O=M\C3\BCller`,
		"3059310e300c06035504030c05206c656164310b3009060355040513023132310a30080603" +
			"5504090c0153310a3008060355040c0c0154310a3008060355042a0c0147310a300806035504040c014e310a3008060355" +
			"04110c0131": `postalCode=1,SN=N,GN=G,title=T,street=S,serialNumber=12,CN=\ lead`,
		"300e310c300a060355040a0c03615c62":                               `O=a\\b`,
		"300e310c300a060355040a0c03617f62":                               `O=a\7Fb`,
		"3019310b3009060355040f0c026263310a300806035504030c0178":         "CN=x,businessCategory=bc",
		"301d311b301906092a864886f70d0109020c0c6e616d65206f66206e6f6e65": "unstructuredName=name of none",
		"300f310d300b06042a0304050c03616263":                             "1.2.3.4.5=#0C03616263",
		"":                                                               "",
		"3000":                                                           "",
		"30183116301406035504030c0d6b756265726e657465732d636100": "",
	} {
		t.Run(der, func(t *testing.T) {
			raw, err := hex.DecodeString(der)
			if err != nil {
				t.Fatal(err)
			}
			if got := distinguishedName(raw); got != want {
				t.Errorf("%s\n got %s\nwant %s", der, got, want)
			}
		})
	}
}
