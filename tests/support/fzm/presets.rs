//! The pipelines of the library's presets (`examples/presets`), as it writes them today.
//!
//! Descriptions in the grammar of [`spec`](crate::spec); bounds and radii are those of the presets.

/// Name, description, in which SHAPE stands for the shape of the array, and rank of the arrays that the benchmarks give it.
pub const PRESETS: &[(&str, &str, usize)] = &[
    ("cusz", "lorenzo_quant:eb=1e-4,mode=noa,radius=512,zigzag=1,config=64,ports=3,huffman:bklen=1024", 2),
    (
        "lorenzo_bitpack",
        "lorenzo_quant:eb=1e-3,mode=noa,radius=64,zigzag=1,config=64,ports=3,bitpack:bits=8,config=15",
        1,
    ),
    (
        "pfpl",
        "quantizer:eb=1e-4,mode=noa,code=u32,radius=4194304,zigzag=1,inplace=1,verify=1,config=72,\
         difference:in=i32,out=u32,chunk=16384,config=7,bitshuffle:w=4,rze:w=1",
        1,
    ),
    (
        "pfpl_rel",
        "quantizer:eb=1e-3,mode=rel,code=u32,radius=32768,cap=1,config=72,ports=3,\
         difference:in=i32,out=u32,chunk=16384,config=7,bitshuffle:w=2,rze:w=1",
        1,
    ),
    ("speed", "quantizer:eb=1e-3,mode=rel,code=u32,radius=32768,cap=1,config=72,ports=3,bitshuffle:w=4,rze:w=1", 1),
    (
        "quantizer_lorenzo_bitpack",
        "quantizer:eb=1e-3,mode=noa,code=u32,radius=512,config=72,ports=3,lorenzo:t=i32,shape=none,config=20,\
         zigzag:t=i32,config=3,bitpack:bits=16,config=15",
        1,
    ),
    (
        "cuszp",
        "quantizer:eb=1e-3,code=u32,linear=1,config=72,lorenzo:t=i32,block=32,shape=none,config=20,adaptive_bitpack:block=32",
        1,
    ),
    (
        "cuszp2",
        "quantizer:eb=1e-3,code=u32,linear=1,config=72,lorenzo:t=i32,block=32,shape=none,config=20,\
         adaptive_bitpack:block=32,select=1",
        1,
    ),
    (
        "cuszp3",
        "quantizer:eb=1e-3,code=u32,linear=1,config=72,tiled_lorenzo:t=i32,tile=1x8x8,adaptive_bitpack:block=64",
        2,
    ),
    (
        "cuszp3_outlier",
        "quantizer:eb=1e-3,code=u32,linear=1,config=72,tiled_lorenzo:t=i32,tile=1x8x8,adaptive_bitpack:block=64,select=1",
        2,
    ),
    ("cuszp3_fixed", "quantizer:eb=1e-3,code=u32,linear=1,config=72,adaptive_bitpack:t=i32,block=64", 1),
    (
        "szp_composed",
        "quantizer:eb=1e-3,code=u32,linear=1,config=72,lorenzo:t=i32,block=128,shape=none,config=20,\
         adaptive_bitpack:block=128",
        1,
    ),
    (
        "fsz",
        "quantizer:eb=1e-3,mode=noa,code=u32,linear=1,config=72,adaptive_lorenzo:t=i32,tile=8,adaptive_bitpack:block=32",
        1,
    ),
    (
        "lorenzo_golomb_rice",
        "quantizer:eb=1e-3,mode=noa,code=u32,linear=1,config=72,lorenzo:t=i32,block=32,shape=none,config=20,golomb_rice:t=i32",
        1,
    ),
    (
        "diffplain_golomb_rice",
        "quantizer:eb=1e-3,mode=noa,code=u32,radius=32768,zigzag=1,inplace=1,config=72,\
         difference:in=i32,out=i32,chunk=16384,golomb_rice:t=i32",
        1,
    ),
    ("fzgpu", "lorenzo_quant:eb=1e-4,mode=noa,radius=512,zigzag=1,config=64,ports=3,bitplane_rze", 2),
    (
        "gpu_zstd",
        "lorenzo_quant:eb=1e-3,mode=prel,radius=2048,zigzag=1,config=64,ports=3,gpulz:chunk=2048,w=4,split=1,\
         huffman:from=1.literals,t=u16,bklen=4096,ans:from=1.lengths,ans:from=1.offsets,ans:from=1.meta",
        1,
    ),
    (
        "cusz_hi_tp",
        "ginterp:eb=1e-3,code=u16,zigzag:t=i8,bytes=1,config=3,bitshuffle:w=1,rre:w=1,\
         merge:from=0.anchor+0.outlier_vals+0.outlier_idxs,bitshuffle:w=4,rre:w=2,rze:w=1",
        3,
    ),
    (
        "cusz_hi_cr",
        "ginterp:eb=1e-3,code=u16,radius=2048,huffman:bklen=4096,merge:from=1+0.anchor+0.outlier_vals+0.outlier_idxs,\
         rre:w=4,zigzag:t=i64,bytes=1,config=3,rze:w=1",
        3,
    ),
    ("szx", "szx:eb=1e-3,block=128", 1),
    ("szp", "szp:eb=1e-3,block=128", 1),
    (
        "sperr_gpu",
        "cdf97,quantizer:eb=1e-4,code=u32,linear=1,config=72,cdf97_outlier_correct:from=input0+1,eb=1e-4,primary=1,\
         speck2d:from=2.codes,shape=SHAPE",
        2,
    ),
];
