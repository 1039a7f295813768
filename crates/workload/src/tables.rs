//! Published flow size distributions.
//!
//! All tables are from public code or configuration files, by the authors of the papers or of
//! replications. Where one published curve has several encodings, each has its own name.
//! Distributions published only by their mean (Facebook's web servers and cache followers: 63,735
//! and 701,490 bytes) are not included.

/// Published distribution. `points` are (size, cumulative share of flows), with sizes in units of
/// `unit` bytes.
#[derive(Debug)]
pub(super) struct PublishedDistribution {
    pub name: &'static str,
    pub source: &'static str,
    /// 1, or the payload of a packet if sizes were published in whole packets.
    pub unit: u64,
    pub points: &'static [(u64, f64)],
}

/// Payload of a packet in the ns-2 scripts that count flows in packets, bytes.
pub(super) const NS2_PAYLOAD_BYTES: u64 = 1_460;

pub(super) const PUBLISHED_TABLES: &[PublishedDistribution] = &[
    PublishedDistribution {
        name: "websearch",
        source: "web search of DCTCP (SIGCOMM 2010, figure 4), in bytes: `DCTCP_CDF.txt` of \
                 HKUST's TrafficGenerator, `WebSearch_distribution.txt` of HPCC",
        unit: 1,
        points: &[
            (0, 0.0),
            (10_000, 0.15),
            (20_000, 0.20),
            (30_000, 0.30),
            (50_000, 0.40),
            (80_000, 0.53),
            (200_000, 0.60),
            (1_000_000, 0.70),
            (2_000_000, 0.80),
            (5_000_000, 0.90),
            (10_000_000, 0.97),
            (30_000_000, 1.0),
        ],
    },
    PublishedDistribution {
        name: "websearch-packets",
        source: "the same in packets of 1,460 bytes: `CDF_dctcp.tcl` of pFabric and PIAS (ns-2)",
        unit: NS2_PAYLOAD_BYTES,
        points: &[
            (6, 0.0),
            (6, 0.15),
            (13, 0.20),
            (19, 0.30),
            (33, 0.40),
            (53, 0.53),
            (133, 0.60),
            (667, 0.70),
            (1_333, 0.80),
            (3_333, 0.90),
            (6_667, 0.97),
            (20_000, 1.0),
        ],
    },
    PublishedDistribution {
        name: "websearch-kaist",
        source: "the same in the version of DX's authors: `workload_search.tcl` of ExpressPass \
                 (ns-2)",
        unit: 1,
        points: &[
            (9_000, 0.0),
            (9_000, 0.15),
            (18_582, 0.20),
            (28_140, 0.30),
            (38_913, 0.40),
            (77_468, 0.53),
            (200_000, 0.60),
            (1_000_000, 0.70),
            (2_000_000, 0.80),
            (5_000_000, 0.90),
            (10_000_000, 0.97),
            (30_000_000, 1.0),
        ],
    },
    PublishedDistribution {
        name: "datamining",
        source: "data mining of VL2 (SIGCOMM 2009), in bytes: `VL2_CDF.txt` of HKUST's \
                 TrafficGenerator",
        unit: 1,
        points: &[
            (0, 0.0),
            (180, 0.1),
            (216, 0.2),
            (560, 0.3),
            (900, 0.4),
            (1_100, 0.5),
            (1_870, 0.6),
            (3_160, 0.7),
            (10_000, 0.8),
            (400_000, 0.9),
            (3_160_000, 0.95),
            (100_000_000, 0.98),
            (1_000_000_000, 1.0),
        ],
    },
    PublishedDistribution {
        name: "datamining-packets",
        source: "the same in packets of 1,460 bytes, with a lighter tail: `CDF_vl2.tcl` of pFabric \
                 and PIAS (ns-2)",
        unit: NS2_PAYLOAD_BYTES,
        points: &[
            (1, 0.0),
            (1, 0.5),
            (2, 0.6),
            (3, 0.7),
            (7, 0.8),
            (267, 0.9),
            (2_107, 0.95),
            (66_667, 0.99),
            (666_667, 1.0),
        ],
    },
    PublishedDistribution {
        name: "datamining-kaist",
        source: "the same in the version of DX's authors: `workload_mining.tcl` of ExpressPass \
                 (ns-2)",
        unit: 1,
        points: &[
            (100, 0.0),
            (10_000, 0.8),
            (152_522, 0.8346),
            (390_541, 0.9),
            (3_223_542, 0.953_846),
            (100_000_000, 0.99),
            (1_000_000_000, 1.0),
        ],
    },
    PublishedDistribution {
        name: "datamining-rc3",
        source: "`datamining-packets` truncated at 2,107 packets, the sizes in RC3's figures (NSDI \
                 2014); inferred from the sizes plotted there",
        unit: NS2_PAYLOAD_BYTES,
        points: &[
            (1, 0.0),
            (1, 0.5 / 0.95),
            (2, 0.6 / 0.95),
            (3, 0.7 / 0.95),
            (7, 0.8 / 0.95),
            (267, 0.9 / 0.95),
            (2_107, 1.0),
        ],
    },
    PublishedDistribution {
        name: "caida",
        source: "request sizes of Bundler (EuroSys 2021, section 7), from a CAIDA trace: the table \
                 of its evaluation",
        unit: 1,
        points: &[
            (0, 0.0),
            (10_000, 0.976),
            (100_000, 0.995),
            (1_000_000, 0.999),
            (5_000_000, 0.999_8),
            (100_000_000, 1.0),
        ],
    },
    PublishedDistribution {
        name: "hadoop",
        source: "Facebook's Hadoop (SIGCOMM 2015): `FbHdp_distribution.txt` of HPCC (SIGCOMM 2019)",
        unit: 1,
        points: &[
            (100, 0.01),
            (350, 0.15),
            (1_000, 0.60),
            (7_000, 0.70),
            (50_000, 0.82),
            (120_000, 0.90),
            (1_000_000, 0.975),
            (10_000_000, 1.0),
        ],
    },
    PublishedDistribution {
        name: "storage",
        source: "Alibaba's storage: `AliStorage2019.txt` of HPCC (SIGCOMM 2019)",
        unit: 1,
        points: &[
            (4_000, 0.2293),
            (8_000, 0.6921),
            (16_000, 0.8061),
            (32_000, 0.9047),
            (64_000, 0.9353),
            (128_000, 0.9677),
            (256_000, 0.9753),
            (2_000_000, 1.0),
        ],
    },
];
